"""Loads a running server as its users would and prints what they would feel.

    python -m tests.bench.online [--url http://127.0.0.1:8000/v1] [--concurrency 1 8 32]
    python -m tests.bench.online --frontend

For each concurrency: output tokens a second, time to first token, time between tokens.
"""

import argparse
import asyncio
import random
import time
from dataclasses import dataclass, field

import openai
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.bench import frontend

WORDS = ("river", "stone", "lamp", "garden", "winter", "music", "paper", "window", "harbour")


@dataclass(slots=True)
class Sample:
    """One streamed completion, times in seconds."""

    tokens: int = 0
    first: float = 0.0
    gaps: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
    model: str
    prompt_words: int
    max_tokens: int


async def complete(client: openai.AsyncOpenAI, load: Load, seed: int) -> Sample:
    """One completion of its full length, whatever the model would rather do."""
    rng = random.Random(seed)
    prompt = f"{seed} " + " ".join(rng.choices(WORDS, k=load.prompt_words))
    sample, last = Sample(), time.perf_counter()
    stream = await client.completions.create(
        model=load.model,
        prompt=prompt,
        max_tokens=load.max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        # Every token is to be seen: one without text would look like a long gap.
        extra_body={"ignore_eos": True, "skip_special_tokens": False},
    )
    async for chunk in stream:
        now = time.perf_counter()
        if chunk.usage is not None:
            sample.tokens = chunk.usage.completion_tokens
        elif chunk.choices and chunk.choices[0].text:
            if sample.first:
                sample.gaps.append(now - last)
            else:
                sample.first = now - last
            last = now
    return sample


async def run(
    client: openai.AsyncOpenAI, load: Load, concurrency: int, requests: int, seed: int
) -> tuple[list[Sample], float]:
    """`requests` completions, `concurrency` at a time; and the seconds they took together."""
    samples: list[Sample] = []
    numbers = iter(range(seed, seed + requests))

    with Progress(transient=True) as progress:
        bar = progress.add_task(f"concurrency {concurrency}", total=requests)

        async def work() -> None:
            for number in numbers:
                samples.append(await complete(client, load, number))
                progress.advance(bar)

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(concurrency)))
        return samples, time.perf_counter() - start


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def row(concurrency: int, samples: list[Sample], seconds: float) -> list[str]:
    first = [sample.first * 1e3 for sample in samples]
    gaps = [gap * 1e3 for sample in samples for gap in sample.gaps]
    figures = [
        sum(sample.tokens for sample in samples) / seconds,
        percentile(first, 0.5),
        percentile(first, 0.99),
        percentile(gaps, 0.5),
        percentile(gaps, 0.99),
    ]
    return [str(concurrency), str(len(samples)), *(f"{figure:.1f}" for figure in figures)]


async def main(arguments: argparse.Namespace) -> None:
    client = openai.AsyncOpenAI(base_url=arguments.url, api_key="none", timeout=600)
    model = arguments.model or (await client.models.list()).data[0].id
    load = Load(model, arguments.prompt_words, arguments.max_tokens)
    seed = random.randrange(1 << 30)  # else a second run finds the first one's prompts cached
    table = Table(title=f"{model}: {load.prompt_words} words in, {load.max_tokens} tokens out")
    for column in ("clients", "requests", "tok/s", "TTFT p50 ms", "p99", "ITL p50 ms", "p99"):
        table.add_column(column, justify="right")
    await run(client, load, 2, 4, seed - 4)  # warm up
    for concurrency in arguments.concurrency:
        requests = arguments.requests or max(8, 4 * concurrency)
        samples, seconds = await run(client, load, concurrency, requests, seed)
        seed += requests
        table.add_row(*row(concurrency, samples, seconds))
    Console(width=100).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", help="the server's first one without it")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, help="per concurrency; four a client without it")
    parser.add_argument("--prompt-words", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--frontend", action="store_true", help="a server of its own, no engine")
    arguments = parser.parse_args()
    if arguments.frontend:
        frontend.main(clients=max(arguments.concurrency))
    else:
        asyncio.run(main(arguments))
