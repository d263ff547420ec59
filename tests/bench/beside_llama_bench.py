"""Times the engine and llama.cpp's `llama-bench` on the same GGUF files, in turns.

    python -m tests.bench.beside_llama_bench --llama BUILD/bin --files a.gguf b.gguf [--rows 8]
        [--rounds 3]

One row makes 64 tokens behind an empty context, and a prompt has 512 tokens, as `llama-bench -n 64
-p 512` has it. `llama-batched-bench` makes those of more rows. The floor of one row is the
bandwidth of memory, measured in each round, over the weights' bytes. `tests.bench.gguf_shapes`
writes files. Needs an otherwise idle machine.
"""

import argparse
import json
import statistics
import subprocess
from collections.abc import Iterator, Mapping
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
SIDES = ("llama", "manta")
COLUMNS = "file, MB, GB/s, floor, case, llama.cpp, Manta, ratio, range, of floor"


@dataclass
class Rounds:
    """Figures of one file, one of each round: tokens a second by case and side, bytes a second."""

    weight_bytes: int
    bandwidths: list[float] = field(default_factory=list)
    cases: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, side: str, found: Mapping[str, float]) -> None:
        for case, speed in found.items():
            self.cases.setdefault(case, {side: [] for side in SIDES})[side].append(speed)


def llama_bench(arguments: argparse.Namespace, file: Path) -> dict[str, float]:
    """Median tokens a second of each case."""
    threads = ["-t", str(arguments.threads)]
    command = [arguments.llama / "llama-bench", "-m", file, *threads]
    command += ["-p", str(PROMPT), "-n", str(TOKENS), "-r", str(arguments.times), "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    speeds = {case["n_gen"]: case["samples_ts"] for case in json.loads(done.stdout)}
    found = {"1": statistics.median(speeds[TOKENS]), str(PROMPT): statistics.median(speeds[0])}
    for rows in arguments.rows:
        found[str(rows)] = llama_batched_bench(arguments, file, rows)
    return found


def llama_batched_bench(arguments: argparse.Namespace, file: Path, rows: int) -> float:
    """The same of some rows."""
    command = [arguments.llama / "llama-batched-bench", "-m", file, "-t", str(arguments.threads)]
    command += ["-c", str(2 * rows * TOKENS), "-npp", "1", "-ntg", str(TOKENS)]
    command += ["-npl", ",".join([str(rows)] * arguments.times), "--output-format", "jsonl"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return statistics.median(float(json.loads(line)["speed_tg"]) for line in lines)


def manta(arguments: argparse.Namespace, core: EngineCore) -> dict[str, float]:
    """The same."""
    found = {str(PROMPT): PROMPT / prompt_ms(core, PROMPT, arguments.times) * 1e3}
    for rows in (1, *arguments.rows):
        means = [
            statistics.mean(token_gaps_ms(core, rows=rows, context=1, steps=TOKENS))
            for _ in range(arguments.times)
        ]
        found[str(rows)] = rows * 1e3 / statistics.median(means)
    return found


def measure(arguments: argparse.Namespace, file: Path, beside: Executor) -> Rounds:
    """`beside` is a process of its own: whoever computes in parallel in the engine's has a team of
    threads, and the engine's then wait for each other asleep."""
    model = load_model(str(file))
    figures = Rounds(weight_bytes_of(model.model))
    torch.set_num_threads(arguments.threads)
    core = EngineCore(model, frozenset(), EngineLimits())
    for rows in (1, *arguments.rows):  # kernels are compiled
        token_gaps_ms(core, rows=rows, context=1, steps=TOKENS)
    for _ in track(range(arguments.rounds), file.name, transient=True):
        figures.add("llama", llama_bench(arguments, file))
        figures.add("manta", manta(arguments, core))
        figures.bandwidths.append(beside.submit(memory_bandwidth).result())
    core.shutdown()
    return figures


def lines_of(name: str, figures: Rounds) -> Iterator[list[str]]:
    median = statistics.median
    bandwidth = median(figures.bandwidths)
    floor = bandwidth / figures.weight_bytes
    head = [name, f"{figures.weight_bytes / 1e6:.0f}", f"{bandwidth / 1e9:.1f}", f"{floor:.1f}"]
    for case, sides in sorted(figures.cases.items(), key=lambda item: int(item[0])):
        ours, others = sides["manta"], sides["llama"]
        ratios = sorted(our / other for our, other in zip(ours, others, strict=True))
        yield [
            *head,
            case,
            *(f"{median(speeds):.1f}" for speeds in (others, ours)),
            f"{median(ratios):.2f}",
            f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
            f"{median(ours) / floor:.2f}" if case == "1" else "",
        ]
        head = [""] * len(head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--llama", type=Path, required=True, help="folder of llama-bench")
    parser.add_argument("--files", type=Path, nargs="+", required=True)
    parser.add_argument("--rows", type=int, nargs="*", default=[], help="such as 8, beside one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=3, help="of each figure in a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parsed = parser.parse_args()
    table = Table(title="tokens a second, medians")
    for column in COLUMNS.split(", "):
        table.add_column(column, justify="right")
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        for path in parsed.files:
            for line in lines_of(path.name, measure(parsed, path, executor)):
                table.add_row(*line)
    Console(width=130).print(table)
