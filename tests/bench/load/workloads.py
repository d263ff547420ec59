"""Loads like those of a server's users, which can be repeated.

Each is a function of a seed alone, and the prompts of two seeds don't begin alike.
"""

import asyncio
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from serve_app.command.bench.client import Server, TimedAnswer, complete
from serve_app.command.bench.words import Words, percentile

Figures = dict[str, float]
SPEED, FINISHED, CACHED = "tok/s", "finished", "cached %"
TTFT = ("TTFT p50 ms", "TTFT p99 ms")
ITL = ("ITL p50 ms", "ITL p99 ms")


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one server under one load, and the `errors` of the requests that failed."""

    figures: Figures
    errors: tuple[str, ...]


class Workload(Protocol):
    """`loads` are the degrees of it, one run each: numbers of clients, where it has several."""

    name: ClassVar[str]

    @property
    def loads(self) -> tuple[int, ...]: ...

    async def run(self, server: Server, words: Words, load: int, seed: str) -> Run: ...


@dataclass(frozen=True, slots=True)
class Distinct:
    """Prompts of nobody else, by so many clients at once."""

    name: ClassVar[str] = "distinct"
    prompt: int = 128
    out: int = 64
    clients: tuple[int, ...] = (1, 8, 16, 32)
    requests: int = 4  # of each client

    @property
    def loads(self) -> tuple[int, ...]:
        return self.clients

    async def run(self, server: Server, words: Words, load: int, seed: str) -> Run:
        rng = random.Random(seed)
        prompts = [words.prompt(rng, self.prompt) for _ in range(load * self.requests)]
        return summary(*await at_once(server, prompts, self.out, load))


@dataclass(frozen=True, slots=True)
class Prefix:
    """Prompts that begin with the same text, which no server has read before."""

    name: ClassVar[str] = "prefix"
    prefix: int = 1024
    tail: int = 32
    out: int = 64
    clients: tuple[int, ...] = (8,)
    requests: int = 4  # of each client

    @property
    def loads(self) -> tuple[int, ...]:
        return self.clients

    async def run(self, server: Server, words: Words, load: int, seed: str) -> Run:
        rng = random.Random(seed)
        common = words.prompt(rng, self.prefix)
        tails = [words.prompt(rng, self.tail) for _ in range(load * self.requests)]
        prompts = [f"{common} {tail}" for tail in tails]
        samples, seconds = await at_once(server, prompts, self.out, load)
        read = sum(sample.prompt_tokens for sample in samples)
        cached = sum(sample.cached_tokens for sample in samples)
        run = summary(samples, seconds)
        return replace(run, figures={**run.figures, CACHED: 100 * cached / max(1, read)})


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Streams that are being read while long prompts arrive, one as soon as the last is answered.

    The gaps are of the streams, while there was a long prompt; the times to the first token are of
    the long prompts.
    """

    name: ClassVar[str] = "arrivals"
    streams: int = 4
    prompt: int = 64
    out: int = 384
    long_prompts: int = 4
    long_prompt: int = 3000
    long_out: int = 8

    @property
    def loads(self) -> tuple[int, ...]:
        return (self.streams,)

    async def run(self, server: Server, words: Words, load: int, seed: str) -> Run:
        rng = random.Random(seed)
        short = [words.prompt(rng, self.prompt) for _ in range(load)]
        long = [words.prompt(rng, self.long_prompt) for _ in range(self.long_prompts)]
        return meanwhile(*await self._arrive(server, short, long))

    async def _arrive(
        self, server: Server, short: Sequence[str], long: Sequence[str]
    ) -> tuple[list[TimedAnswer], list[TimedAnswer]]:
        begun = [asyncio.Event() for _ in short]
        async with asyncio.TaskGroup() as group:
            streams = [
                group.create_task(complete(server, prompt, self.out, event))
                for prompt, event in zip(short, begun, strict=True)
            ]
            for event in begun:
                await event.wait()
            arrived = list[TimedAnswer]()
            for prompt in long:
                if not any(stream.done() for stream in streams):
                    arrived.append(await complete(server, prompt, self.long_out))
        return [stream.result() for stream in streams], arrived


@dataclass(frozen=True, slots=True)
class Burst:
    """Everybody at once."""

    name: ClassVar[str] = "burst"
    prompt: int = 256
    out: int = 128
    requests: int = 128

    @property
    def loads(self) -> tuple[int, ...]:
        return (self.requests,)

    async def run(self, server: Server, words: Words, load: int, seed: str) -> Run:
        rng = random.Random(seed)
        prompts = [words.prompt(rng, self.prompt) for _ in range(load)]
        run = summary(*await at_once(server, prompts, self.out, load))
        return replace(run, figures={FINISHED: load - len(run.errors), **run.figures})


WORKLOADS: tuple[Distinct | Prefix | Arrivals | Burst, ...] = (
    Distinct(),
    Prefix(),
    Arrivals(),
    Burst(),
)


async def at_once(
    server: Server, prompts: Sequence[str], out: int, clients: int
) -> tuple[list[TimedAnswer], float]:
    """All prompts, `clients` at a time; and the seconds they took together."""
    samples = list[TimedAnswer]()
    waiting = iter(prompts)

    async def work() -> None:
        for prompt in waiting:
            samples.append(await complete(server, prompt, out))

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return samples, time.perf_counter() - start


def summary(samples: Sequence[TimedAnswer], seconds: float) -> Run:
    """Speed and latency of the answers that came whole."""
    whole = [sample for sample in samples if not sample.error]
    gaps = [gap for sample in whole for _, gap in sample.gaps()]
    speed = {SPEED: sum(sample.tokens for sample in whole) / seconds}
    return Run(speed | latencies([sample.first for sample in whole], gaps), errors(samples))


def meanwhile(streams: Sequence[TimedAnswer], arrived: Sequence[TimedAnswer]) -> Run:
    """Gaps of the streams while all of them ran and one of those that arrived was there."""
    start = arrived[0].sent if arrived else math.inf
    end = min(sample.ended for sample in (*streams, *arrived[-1:]))
    gaps = [gap for stream in streams for at, gap in stream.gaps() if start <= at <= end]
    firsts = [sample.first for sample in arrived if not sample.error]
    return Run(latencies(firsts, gaps), errors((*streams, *arrived)))


def latencies(firsts: Sequence[float], gaps: Sequence[float]) -> Figures:
    return {
        name: 1e3 * percentile(values, share)
        for names, values in ((TTFT, firsts), (ITL, gaps))
        for name, share in zip(names, (0.5, 0.99), strict=True)
    }


def errors(samples: Sequence[TimedAnswer]) -> tuple[str, ...]:
    return tuple(sample.error for sample in samples if sample.error)
