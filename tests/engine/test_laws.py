"""The output of a request depends on it alone: not on batch, chunks, pages or replica."""

from dataclasses import replace
from functools import cache

import pytest

from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest, SamplingParams
from tests.engine.drive import Outcome, engine, random_ids, request, roomy

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


def requests(name: str, salt: bool = False) -> list[GenerationRequest]:
    """One a prompt; with a salt of its own none can hit another's pages."""
    return [
        request(
            f"r{i}",
            prompt,
            SAMPLINGS[name],
            max_tokens=N_NEW - i,
            cache_salt=str(i) if salt else "",
        )
        for i, prompt in enumerate(PROMPTS)
    ]


@cache
def undisturbed(name: str) -> list[Outcome]:
    """Each request alone on an engine, its prompt in one piece, no prefix to find."""
    with engine() as running:
        outcomes = [running.run(req)[0] for req in requests(name, salt=True)]
        assert running.core.stats().cached_tokens == 0
    return outcomes


def check(outcomes: list[Outcome], name: str, skipped: int = 0) -> None:
    """Asserts equality with the undisturbed outcomes behind their first `skipped` tokens."""
    for outcome, expected in zip(outcomes, undisturbed(name), strict=True):
        assert outcome.token_ids == expected.token_ids[skipped:]
        assert outcome.finish_reason is expected.finish_reason is FinishReason.LENGTH
        check_logprobs(outcome, expected, skipped)


def check_logprobs(outcome: Outcome, expected: Outcome, skipped: int) -> None:
    assert len(outcome.logprobs) == len(expected.logprobs[skipped:])
    for entry, other in zip(outcome.logprobs, expected.logprobs[skipped:], strict=True):
        assert entry.token_id == other.token_id
        assert entry.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [token_id for token_id, _ in entry.top] == [token_id for token_id, _ in other.top]
        assert dict(entry.top) == pytest.approx(dict(other.top), abs=1e-4)


def test_the_undisturbed_outcomes_differ_by_sampling() -> None:
    assert len({undisturbed(name)[0].token_ids for name in SAMPLINGS}) == len(SAMPLINGS)


@every_sampling
def test_batched_is_alone(name: str) -> None:
    with engine() as running:
        check(running.run_together(*requests(name)), name)
        assert running.core.stats().steps < 1.5 * N_NEW


@every_sampling
@pytest.mark.parametrize("max_batch_tokens", [4, 7, 16])
def test_chunked_is_whole(name: str, max_batch_tokens: int) -> None:
    limits = roomy(max_running=4, max_batch_tokens=max_batch_tokens)
    with engine(limits=limits) as running:
        check(running.run_together(*requests(name, salt=True)), name)


@every_sampling
def test_a_prefix_hit_is_no_hit(name: str) -> None:
    with engine() as running:
        running.run(*requests(name))
        outcomes = running.run(*requests(name))
        check(outcomes, name)
        assert [outcome.cached_tokens for outcome in outcomes] == [20, 16, 8, 0]


@every_sampling
@pytest.mark.parametrize("n_pages", [12, 17])
def test_preempted_is_undisturbed(name: str, n_pages: int) -> None:
    with engine(limits=roomy(n_pages=n_pages, max_batch_tokens=32)) as running:
        check(running.run_together(*requests(name)), name)
        assert running.core.stats().preemptions > 0


@every_sampling
@pytest.mark.parametrize("n_produced", [1, 6, 19])
def test_failed_over_is_undisturbed(name: str, n_produced: int) -> None:
    expected = undisturbed(name)
    continued = [
        replace(req, produced_ids=outcome.token_ids[:n_produced])
        for req, outcome in zip(requests(name), expected, strict=True)
    ]
    with engine() as running:
        check(running.run_together(*continued), name, skipped=n_produced)


def test_a_stream_folded_is_what_is_run_at_once() -> None:
    """`run` reads single events, `stream` whatever piled up: the same in the end."""
    with engine() as running:
        (streamed,) = running.run_together(requests("everything")[0])
        (run,) = running.run(requests("everything")[0])
    assert streamed.token_ids == run.token_ids
    check_logprobs(streamed, run, skipped=0)


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
