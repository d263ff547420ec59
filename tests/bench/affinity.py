"""Cached tokens that prefix-affine routing finds on a real graph of two replicas, and without it.

    python -m tests.bench.affinity

The same multi-turn conversations are held three times over: with the router; with the router's
process stopped, so that Serve spreads requests by load; and in the head of an oracle, for whom
every token of an earlier turn is cached. Pages are few: what is sent to both replicas does not fit.
"""

import argparse
import asyncio
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.checkpoints import save_checkpoint
from tests.e2e.server import Server

PAGE = 16
SYSTEM = 160  # characters, and so tokens, that all conversations of a round begin with


@dataclass(slots=True)
class Tally:
    prompt: int = 0
    cached: int = 0
    possible: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    conversations: int
    turns: int
    at_once: int


async def converse(client: httpx.AsyncClient, tally: Tally, rng: random.Random, turns: int) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz "
    text = "".join(random.Random("system").choices(letters, k=SYSTEM))
    known = 0
    for _ in range(turns):
        text += "".join(rng.choices(letters, k=rng.randint(60, 160)))
        body = {"prompt": text, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
        answer = await client.post("/v1/completions", json=body)
        usage = answer.raise_for_status().json()["usage"]
        tally.prompt += usage["prompt_tokens"]
        tally.cached += usage["prompt_tokens_details"]["cached_tokens"]
        tally.possible += max(known, SYSTEM) // PAGE * PAGE
        known = len(text)


async def play(server: Server, trace: Trace, progress: Progress, seed: str) -> Tally:
    tally, slots = Tally(), asyncio.Semaphore(trace.at_once)
    task = progress.add_task(seed, total=trace.conversations)

    async def one(client: httpx.AsyncClient, number: int) -> None:
        async with slots:
            await converse(client, tally, random.Random(f"{seed} {number}"), trace.turns)
            progress.advance(task)

    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        await asyncio.gather(*(one(client, number) for number in range(trace.conversations)))
    return tally


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    pids = server.replicas("Router")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=32)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    trace = Trace(given.conversations, given.turns, given.at_once)
    settings = {"name": "tiny", "dtype": "float32", "num_replicas": 2, "num_cpus": 0.5}
    with tempfile.TemporaryDirectory() as folder, Progress() as progress:
        model = save_checkpoint(Path(folder) / "model")
        arguments = {"model": str(model), "n_pages": 400, **settings}
        with Server(Path(folder), arguments) as server:
            server.eventually(lambda: len(replicas(server)) == 2, 60)
            affine = asyncio.run(play(server, trace, progress, "with the router"))
            with stopped(server):
                spread = asyncio.run(play(server, trace, progress, "by load alone"))
    show(affine, spread)


def replicas(server: Server) -> list[object]:
    found: list[object] = httpx.get(f"{server.url}/stats", timeout=30).json()["replicas"]
    return found


def show(affine: Tally, spread: Tally) -> None:
    table = Table(title="Prompt tokens found in the prefix cache, two replicas")
    for column in ("routing", "prompt tokens", "cached", "hit rate", "of the oracle's"):
        table.add_column(column, justify="right")
    for name, tally, cached in (
        ("oracle", affine, affine.possible),
        ("prefix-affine", affine, affine.cached),
        ("by load alone", spread, spread.cached),
    ):
        share = cached / tally.possible
        rate = cached / tally.prompt
        table.add_row(name, f"{tally.prompt:,}", f"{cached:,}", f"{rate:.1%}", f"{share:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
