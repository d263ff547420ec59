"""Times the engine and llama.cpp's `llama-bench` on the same GGUF files, in turns.

    python -m tests.bench.beside_llama_bench --llama BUILD/bin --files a.gguf b.gguf [--rounds 3]

One row makes 64 tokens behind an empty context, and a prompt has 512 tokens, as `llama-bench -n 64
-p 512` has it. The floor is the bandwidth of memory, measured in each round, over the weights'
bytes. `tests.bench.gguf_shapes` writes files. Needs an otherwise idle machine.
"""

import argparse
import json
import statistics
import subprocess
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loader import load_model
from tests.bench.engine import memory_bandwidth, prompt_ms, token_gaps_ms, weight_bytes_of

TOKENS, PROMPT = 64, 512
COLUMNS = (
    "file, MB, GB/s, floor, llama.cpp, Manta, ratio, range, of floor, 512: llama.cpp, Manta, ratio"
)


@dataclass
class Rounds:
    """Figures of one file, one of each round: tokens a second, and bytes a second."""

    weight_bytes: int
    bandwidths: list[float] = field(default_factory=list)
    row: dict[str, list[float]] = field(default_factory=lambda: {"llama": [], "manta": []})
    prompt: dict[str, list[float]] = field(default_factory=lambda: {"llama": [], "manta": []})


def llama_bench(arguments: argparse.Namespace, file: Path) -> tuple[float, float]:
    """Median tokens a second of one row and of the prompt."""
    command = [arguments.llama / "llama-bench", "-m", file, "-t", str(arguments.threads)]
    command += ["-p", str(PROMPT), "-n", str(TOKENS), "-r", str(arguments.times), "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = {
        case["n_gen"]: statistics.median(case["samples_ts"]) for case in json.loads(done.stdout)
    }
    return found[TOKENS], found[0]


def manta(arguments: argparse.Namespace, core: EngineCore) -> tuple[float, float]:
    """The same."""
    means = [
        statistics.mean(token_gaps_ms(core, rows=1, context=1, steps=TOKENS))
        for _ in range(arguments.times)
    ]
    return 1e3 / statistics.median(means), PROMPT / prompt_ms(core, PROMPT, arguments.times) * 1e3


def measure(arguments: argparse.Namespace, file: Path, beside: Executor) -> Rounds:
    """`beside` is a process of its own: whoever computes in parallel in the engine's has a team of
    threads, and the engine's then wait for each other asleep."""
    model = load_model(str(file))
    figures = Rounds(weight_bytes_of(model.model))
    torch.set_num_threads(arguments.threads)
    core = EngineCore(model, frozenset(), EngineLimits())
    token_gaps_ms(core, rows=1, context=1, steps=TOKENS)  # kernels are compiled
    for _ in track(range(arguments.rounds), file.name, transient=True):
        row, prompt = llama_bench(arguments, file)
        figures.row["llama"].append(row)
        figures.prompt["llama"].append(prompt)
        row, prompt = manta(arguments, core)
        figures.row["manta"].append(row)
        figures.prompt["manta"].append(prompt)
        figures.bandwidths.append(beside.submit(memory_bandwidth).result())
    core.shutdown()
    return figures


def ratios(sides: dict[str, list[float]]) -> list[float]:
    return sorted(ours / other for ours, other in zip(sides["manta"], sides["llama"], strict=True))


def cells(figures: Rounds) -> list[str]:
    median = statistics.median
    bandwidth = median(figures.bandwidths)
    floor, row = bandwidth / figures.weight_bytes, ratios(figures.row)
    ours = median(figures.row["manta"])
    return [
        f"{figures.weight_bytes / 1e6:.0f}",
        f"{bandwidth / 1e9:.1f}",
        f"{floor:.1f}",
        f"{median(figures.row['llama']):.1f}",
        f"{ours:.1f}",
        f"{median(row):.2f}",
        f"{row[0]:.2f}-{row[-1]:.2f}",
        f"{ours / floor:.2f}",
        *(f"{median(figures.prompt[side]):.0f}" for side in ("llama", "manta")),
        f"{median(ratios(figures.prompt)):.2f}",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--llama", type=Path, required=True, help="folder of llama-bench")
    parser.add_argument("--files", type=Path, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=3, help="of each figure in a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parsed = parser.parse_args()
    table = Table(title="tokens a second, medians")
    for column in COLUMNS.split(", "):
        table.add_column(column, justify="right")
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        for path in parsed.files:
            table.add_row(path.name, *cells(measure(parsed, path, executor)))
    Console(width=130).print(table)
