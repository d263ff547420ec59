"""The output of a request depends on it alone: not on batch, chunks, pages or replica."""

from dataclasses import replace
from functools import cache

import pytest

from deployments.contract.events import FinishReason
from deployments.contract.requests import SamplingParams
from tests.engine import laws
from tests.engine.drive import engine, random_ids, request
from tests.engine.workload import Workload

N_NEW = 24
SHARED = random_ids(21, seed=1)
PROMPTS = (
    SHARED,
    SHARED[:17] + random_ids(3, seed=2),
    random_ids(9, seed=3),
    random_ids(2, seed=4),
)
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0, logprobs=3),
    "temperature": SamplingParams(temperature=2.5, seed=1, logprobs=3),
    "top_k": SamplingParams(temperature=3, top_k=9, seed=2),
    "top_p": SamplingParams(temperature=3, top_p=0.8, seed=3),
    "min_p": SamplingParams(temperature=3, min_p=0.02, seed=4),
    "penalties": SamplingParams(
        temperature=2,
        repetition_penalty=1.4,
        presence_penalty=0.7,
        frequency_penalty=0.6,
        seed=5,
        logprobs=0,
    ),
    "greedy penalties": SamplingParams(temperature=0, repetition_penalty=1.3, frequency_penalty=1),
    "bias": SamplingParams(temperature=1.5, logit_bias=((3, 9.0), (70, -50.0)), seed=6),
    "everything": SamplingParams(
        temperature=2,
        top_k=40,
        top_p=0.95,
        min_p=0.001,
        repetition_penalty=1.1,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        logit_bias=((5, 4.0),),
        seed=7,
        logprobs=5,
    ),
}
every_sampling = pytest.mark.parametrize("name", SAMPLINGS)


@cache
def workload(name: str) -> Workload:
    return Workload(
        requests=[
            request(f"r{i}", prompt, SAMPLINGS[name], max_tokens=N_NEW - i)
            for i, prompt in enumerate(PROMPTS)
        ],
        chunks=[{"max_batch_tokens": n, "max_running": 4} for n in (4, 7, 16)],
        is_apart_in_chunks=True,
        few_pages=[{"n_pages": n, "max_batch_tokens": 32} for n in (12, 17)],
        cuts=(1, 6, 19),
    )


def test_the_undisturbed_outcomes_differ_by_sampling() -> None:
    first = [workload(name).undisturbed[0] for name in SAMPLINGS]
    assert len({outcome.token_ids for outcome in first}) == len(SAMPLINGS)
    assert {outcome.finish_reason for outcome in first} == {FinishReason.LENGTH}


@every_sampling
@pytest.mark.parametrize("law", [*laws.USUAL, laws.a_hit_is_no_hit, laws.drafted_is_plain])
def test_law(law: laws.Law, name: str) -> None:
    law(workload(name))


@every_sampling
@pytest.mark.parametrize("law", [laws.preempted_is_undisturbed, laws.a_hit_is_no_hit])
def test_law_where_steps_are_launched_ahead(law: laws.Law, name: str) -> None:
    ahead = workload(name).on(async_scheduling=True)
    law(replace(ahead, few_pages=ahead.few_pages[:1]))


def test_streamed_is_unary() -> None:
    laws.streamed_is_unary(workload("everything"))


def test_another_seed_draws_other_tokens_and_the_same_seed_the_same() -> None:
    with engine() as running:
        outcomes = [
            running.run(request("r", SHARED, SamplingParams(temperature=3, seed=seed)))[0]
            for seed in (0, 1, 2**63, 2**64 - 2, -1, 0)
        ]
    drawn = [outcome.token_ids for outcome in outcomes]
    assert {outcome.finish_reason for outcome in outcomes} == {FinishReason.LENGTH}
    assert drawn[0] == drawn[-1]
    assert len(set(drawn)) == 5
