"""Times the engine on a GPU beside the device's own limits and transformers' continuous batching.

    python -m tests.bench.gpu [--shape full|tiny] [--device cuda] [--json PATH] [--parts quantized]

Random bf16 weights of three shapes: what they say does not matter to their speed. Needs no Ray.
Figures are told and written down as they come: a run may be cut short, or a part of it fail.
"""

import argparse
import platform
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from tests.bench.gpu.measures import PARTS, Report, measure
from tests.bench.gpu.plans import PLANS


def show(report: Report, device: str) -> None:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor()
    table = Table("measured", "figure", "wanted", title=f"{name}, torch {torch.__version__}")
    for row in report.rows:
        table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shape", choices=PLANS, default="full")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    arguments = parser.parse_args()
    measured = Report(arguments.json)
    parts = [*dict.fromkeys(["device", *arguments.parts])]  # others are set beside its limits
    succeeded = measure(PLANS[arguments.shape], arguments.device, measured, parts)
    show(measured, arguments.device)
    sys.exit(not succeeded)
