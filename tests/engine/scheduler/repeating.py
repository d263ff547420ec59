"""Requests that repeat themselves, and what comes of them where nothing is drafted."""

from collections.abc import Sequence
from functools import cache

import pytest

from deployments.contract.requests import GenerationRequest, SamplingParams
from tests.engine.drive import GREEDY, Outcome, engine, random_ids, request
from tests.models import forgetful

N_NEW = 90
PERIOD = random_ids(5, seed=1)
SAMPLINGS = {
    "greedy": GREEDY,
    "cool": SamplingParams(temperature=0.3, seed=3),
    "cut": SamplingParams(temperature=1, top_k=2, seed=4),
}
every_repeating = pytest.mark.parametrize("name", SAMPLINGS)


def repeating(name: str) -> list[GenerationRequest]:
    prompts = (PERIOD * 4, PERIOD * 3 + random_ids(3, seed=2), random_ids(9, seed=3))
    return [
        request(f"r{i}", prompt, SAMPLINGS[name], max_tokens=N_NEW - i)
        for i, prompt in enumerate(prompts)
    ]


@cache
def plain(name: str, architecture: str = "llama") -> list[Outcome]:
    with engine(model=forgetful(architecture)) as running:
        return [running.run(req)[0] for req in repeating(name)]


def tokens(outcomes: Sequence[Outcome]) -> list[tuple[int, ...]]:
    return [outcome.token_ids for outcome in outcomes]
