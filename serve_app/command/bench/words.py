"""Prompts of so many tokens, for a server whose tokenizer is not known; and percentiles."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.command.bench.client import Server, complete

# One token each in most vocabularies, with the space before it.
TEXT = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work number night "
    "point home water room mother area money story fact month lot right study book eye job word "
    "business issue side kind head house service friend father power hour game line end member law"
)
WORDS = TEXT.split()


@dataclass(frozen=True, slots=True)
class Words:
    """Prompts of words, whose tokens were counted by a server."""

    tokens_a_word: float

    def prompt(self, rng: random.Random, tokens: int) -> str:
        return " ".join(rng.choices(WORDS, k=round(tokens / self.tokens_a_word)))


async def count_words(server: Server, seed: str) -> Words:
    """Raises RuntimeError where the server can't answer at all."""
    prompt = " ".join(random.Random(seed).choices(WORDS, k=256))
    sample = await complete(server, prompt, 1)
    if sample.error:
        raise RuntimeError(f"{server.name}, {server.url}: {sample.error}")
    return Words(sample.prompt_tokens / 256)


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that `share` of them don't exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
