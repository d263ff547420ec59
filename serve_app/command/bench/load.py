"""A load of requests that arrive at a rate, and what its clients felt, by the names of vLLM's
`bench serve`.
"""

import asyncio
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from serve_app.command.bench.client import Server, TimedAnswer, complete
from serve_app.command.bench.words import Words, percentile

MS = 1e3
# Latencies by vLLM's names, with words for people.
TITLES: Mapping[str, str] = {
    "ttft": "Time to first token",
    "tpot": "Time per output token, without the first",
    "itl": "Inter-token latency",
    "e2el": "Whole answer",
}


@dataclass(frozen=True, slots=True)
class Load:
    """rate: requests a second, as independent clients send them; infinite: all at once.
    at_once: most requests that run; 0 is any number.
    prefix: tokens that all prompts begin with.
    """

    requests: int
    prompt: int
    out: int
    rate: float = math.inf
    at_once: int = 0
    prefix: int = 0
    seed: str = "0"

    def prompts(self, words: Words) -> list[str]:
        rng = random.Random(self.seed)
        common = words.prompt(rng, self.prefix)
        tails = [words.prompt(rng, self.prompt) for _ in range(self.requests)]
        return [f"{common} {tail}".strip() for tail in tails]

    def arrivals(self) -> list[float]:
        """Returns the second of each request's arrival, of a Poisson process."""
        rng, now, found = random.Random(f"{self.seed} arrivals"), 0.0, []
        for _ in range(self.requests):
            found.append(now)
            now += 0.0 if math.isinf(self.rate) else rng.expovariate(self.rate)
        return found


async def run(
    server: Server, load: Load, words: Words, ended: Callable[[], object]
) -> tuple[list[TimedAnswer], float]:
    """Returns the answers, and the seconds that they took together; calls `ended` after each."""
    places = asyncio.Semaphore(load.at_once or load.requests)

    async def ask(prompt: str, after_s: float) -> TimedAnswer:
        await asyncio.sleep(after_s)
        async with places:
            answer = await complete(server, prompt, load.out)
        ended()
        return answer

    began = time.perf_counter()
    asked = zip(load.prompts(words), load.arrivals(), strict=True)
    answers = await asyncio.gather(*(ask(*each) for each in asked))
    return answers, time.perf_counter() - began


def results(
    answers: Sequence[TimedAnswer], seconds: float, percentiles: Sequence[float]
) -> dict[str, float]:
    """Returns figures by vLLM's names; latencies are in milliseconds, of the answers that came."""
    whole = [answer for answer in answers if not answer.error]
    tokens_in = sum(answer.prompt_tokens for answer in whole)
    tokens_out = sum(answer.tokens for answer in whole)
    found: dict[str, float] = {
        "completed": len(whole),
        "failed": len(answers) - len(whole),
        "duration": seconds,
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "request_throughput": len(whole) / seconds,
        "output_throughput": tokens_out / seconds,
        "total_token_throughput": (tokens_in + tokens_out) / seconds,
    }
    for name, values in latencies(whole).items():
        found[f"mean_{name}_ms"] = MS * statistics.fmean(values) if values else math.nan
        found[f"median_{name}_ms"] = MS * statistics.median(values) if values else math.nan
        for share in percentiles:
            found[f"p{share:g}_{name}_ms"] = MS * percentile(values, share / 100)
    return found


def latencies(answers: Sequence[TimedAnswer]) -> dict[str, list[float]]:
    """Returns seconds by the names of TITLES."""
    return {
        "ttft": [answer.first for answer in answers],
        "tpot": [
            (answer.chunks[-1] - answer.chunks[0]) / (answer.tokens - 1)
            for answer in answers
            if answer.tokens > 1
        ],
        "itl": [gap for answer in answers for _, gap in answer.gaps()],
        "e2el": [answer.ended - answer.sent for answer in answers],
    }
