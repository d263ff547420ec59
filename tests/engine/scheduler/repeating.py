"""Requests that repeat themselves, on models that do: much that is drafted is right."""

from functools import cache, partial

import pytest

from deployments.contract.requests import SamplingParams
from tests.engine.drive import GREEDY, random_ids, request
from tests.engine.workload import Workload
from tests.models import forgetful

N_NEW = 90
PERIOD = random_ids(5, seed=1)
PROMPTS = (PERIOD * 4, PERIOD * 3 + random_ids(3, seed=2), random_ids(9, seed=3))
SAMPLINGS = {
    "greedy": GREEDY,
    "cool": SamplingParams(temperature=0.7, seed=3),
    "cut": SamplingParams(temperature=1, top_k=2, seed=4),
}
every_repeating = pytest.mark.parametrize("name", SAMPLINGS)


@cache
def repeating(name: str, architecture: str = "llama") -> Workload:
    return Workload(
        requests=[
            request(f"r{i}", prompt, SAMPLINGS[name], max_tokens=N_NEW - i)
            for i, prompt in enumerate(PROMPTS)
        ],
        model=partial(forgetful, architecture),
        few_pages=[{"n_pages": 36}],
        failing=(8, 15, 22),
        n_accepted=1,
    )
