"""The tokens of a sequence are counted for as long as it goes on."""

from collections import Counter

import numpy as np
import pytest

from deployments.contract.events import FinishReason
from deployments.contract.requests import SamplingParams
from deployments.engine.tasks.token_counts import INITIAL_CAPACITY, TokenCounts
from tests.engine.drive import engine, random_ids, request

LONG = np.random.default_rng(0).integers(0, 5 * INITIAL_CAPACITY, 9 * INITIAL_CAPACITY)


@pytest.mark.parametrize("step", [1, 7, len(LONG)])
@pytest.mark.parametrize("window", [INITIAL_CAPACITY // 2, 3 * INITIAL_CAPACITY, len(LONG)])
@pytest.mark.parametrize("n_prompt", [0, 2 * INITIAL_CAPACITY])
def test_more_tokens_than_there_was_room_for_are_counted(
    step: int, window: int, n_prompt: int
) -> None:
    counts = TokenCounts(LONG, n_prompt)
    for end in range(step, len(LONG) + 1, step):
        first = max(0, end - window)
        counts.move_window(first, end)
        found = dict(zip(counts.ids.tolist(), counts.counts.tolist(), strict=True))
        assert {id_: n for id_, n in found.items() if n} == Counter(LONG[first:end].tolist())
    assert set(counts.ids[counts.in_prompt].tolist()) == set(LONG[:n_prompt].tolist())


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=0, presence_penalty=2),
        SamplingParams(temperature=0, frequency_penalty=2, penalty_last_n=-1),
        SamplingParams(temperature=2, repetition_penalty=1.5, penalty_last_n=100, seed=1),
    ],
)
def test_penalties_see_more_distinct_tokens_than_there_was_room_for(
    sampling: SamplingParams,
) -> None:
    with engine() as running:
        (outcome,) = running.run(request("r", random_ids(5, seed=1), sampling, max_tokens=300))
        assert running.core.stats().failed_steps == 0
    assert outcome.finish_reason is FinishReason.LENGTH
    assert len(set(outcome.token_ids)) > INITIAL_CAPACITY
