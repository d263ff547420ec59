"""Compares two OpenAI-compatible servers under the same loads; rounds change who is first.

    python -m tests.bench.compare --a http://127.0.0.1:8000/v1 --b http://127.0.0.1:8090/v1
        [--workload distinct prefix arrivals burst] [--rounds 3] [--plot latency.png]
        [--distinct-clients 1 8] [--burst-out 32] ...

Prints medians over the rounds and of the rounds' ratios, as a Markdown table. README.md beside
this file says how to have llama-server on the same machine.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from serve_app.command.bench.client import Server, first_model
from serve_app.command.bench.words import count_words
from tests.bench.load.plot import can_draw, draw
from tests.bench.load.results import Pair, failures, table
from tests.bench.load.workloads import WORKLOADS, Distinct, Workload

WARM_UP = Distinct(out=8, requests=2)


@dataclass(frozen=True, slots=True)
class Turn:
    """One run: of a pair, of a round, of server A (0) or B (1)."""

    pair: int
    workload: Workload
    load: int
    round: int
    server: int


def turns(workloads: Sequence[Workload], rounds: int) -> Iterator[Turn]:
    """A B, B A, A B ... of each load, so that what drifts is on nobody's side."""
    loads = [(workload, load) for workload in workloads for load in workload.loads]
    for pair, (workload, load) in enumerate(loads):
        for number in range(rounds):
            for server in (0, 1) if number % 2 == 0 else (1, 0):
                yield Turn(pair, workload, load, number, server)


async def compare(
    servers: tuple[Server, Server],
    schedule: Sequence[Turn],
    seed: int,
    before: Callable[[str], object],
) -> list[Pair]:
    """Each round's prompts are new, and the same to both; tokens in them are counted as A does.

    `before` is told of each turn. Raises RuntimeError for a server that can't answer.
    """
    words, _ = [await count_words(server, str(seed)) for server in servers]
    for server in servers:
        await WARM_UP.run(server, words, 2, f"{seed} warm-up")
    pairs: dict[int, Pair] = {}
    for turn in schedule:
        server = servers[turn.server]
        before(f"{turn.workload.name} {turn.load}, {server.name}")
        own = f"{seed} {turn.workload.name} {turn.load} {turn.round}"
        run = await turn.workload.run(server, words, turn.load, own)
        pair = pairs.setdefault(turn.pair, Pair(turn.workload.name, turn.load))
        pair.runs[turn.server].append(run)
    return list(pairs.values())


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Each size of each workload is an option: `--distinct-clients 1 8`."""
    for workload in WORKLOADS:
        group = parser.add_argument_group(workload.name, type(workload).__doc__)
        for field in fields(workload):
            many = isinstance(field.default, tuple)
            group.add_argument(
                f"--{workload.name}-{field.name.replace('_', '-')}",
                type=positive,
                nargs="+" if many else None,
                default=field.default,
                help=f"default {field.default}",
            )


def chosen(arguments: argparse.Namespace) -> list[Workload]:
    """The workloads that were asked for, in the sizes that were."""
    return [
        replace(
            workload,
            **{f.name: getattr(arguments, f"{workload.name}_{f.name}") for f in fields(workload)},
        )
        for workload in WORKLOADS
        if workload.name in arguments.workload
    ]


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def read_arguments() -> argparse.Namespace:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for which in ("a", "b"):
        parser.add_argument(f"--{which}", required=True, metavar="URL", help="of OpenAI's API")
        parser.add_argument(f"--{which}-model", help="the server's first one without it")
        parser.add_argument(f"--{which}-name", default=which.upper(), help="in table and plot")
    parser.add_argument("--workload", choices=names, nargs="+", default=names)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seed", type=int, help="of the prompts; a new one without it")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="latency over load")
    add_sizes(parser)
    arguments = parser.parse_args()
    if arguments.plot and not can_draw():
        parser.error("--plot needs matplotlib, which is not installed: pip install matplotlib")
    return arguments


async def server(name: str, url: str, model: str | None) -> Server:
    """Raises RuntimeError for one that is not there."""
    base = url.rstrip("/")
    try:
        return Server(name, base, model or await first_model(base))
    except (OSError, EOFError, ValueError, LookupError) as error:
        raise RuntimeError(f"{name}, {base}: {error}") from error


async def main(arguments: argparse.Namespace) -> None:
    a = await server(arguments.a_name, arguments.a, arguments.a_model)
    b = await server(arguments.b_name, arguments.b, arguments.b_model)
    # New ones: a second run would find the first one's prompts in the servers' caches.
    seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
    schedule = list(turns(chosen(arguments), arguments.rounds))
    console = Console(width=120)
    # Drawn when a turn begins: a clock of its own would take time from the servers.
    with Progress(console=console, auto_refresh=False, transient=True) as progress:
        bar = progress.add_task("warming up", total=len(schedule) + 1)
        start, spent = time.perf_counter(), time.process_time()

        def before(turn: str) -> None:
            progress.update(bar, description=turn, advance=1)
            progress.refresh()

        pairs = await compare((a, b), schedule, seed, before)
        share = (time.process_time() - spent) / (time.perf_counter() - start)
    console.print(table(pairs, (a.name, b.name)))
    console.print(f"Medians of {arguments.rounds} rounds, seed {seed}; model {a.model}, {b.model}.")
    console.print(f"The client took {share:.1%} of one core.")
    for line in failures(pairs, (a.name, b.name)):
        console.print(line, style="red", highlight=False, markup=False)
    if arguments.plot:
        draw(pairs, (a.name, b.name), arguments.plot)


if __name__ == "__main__":
    try:
        asyncio.run(main(read_arguments()))
    except RuntimeError as error:
        raise SystemExit(str(error)) from error
