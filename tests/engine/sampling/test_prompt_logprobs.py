"""Log-probabilities of a prompt's tokens are the model's own, whatever its pages went through."""

import asyncio
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.sampling import logprobs
from tests.engine.drive import GREEDY, Engine, Outcome, engine, random_ids, request, roomy
from tests.models import tiny_model

SHARED = random_ids(31, seed=1)
PROMPTS = (
    SHARED,
    SHARED[:22] + random_ids(9, seed=2),
    random_ids(1, seed=3),
    random_ids(90, seed=4),
)
N_TOP = (0, 2, 3, 1)
RANDOM = SamplingParams(temperature=2, seed=7, logprobs=1)


def requests(max_tokens: int = 30) -> list[GenerationRequest]:
    """One a prompt, and one that does not ask."""
    return [
        request(f"r{i}", prompt, RANDOM, max_tokens=max_tokens, prompt_logprobs=n_top)
        for i, (prompt, n_top) in enumerate(zip(PROMPTS, N_TOP, strict=True))
    ] + [request("silent", SHARED, RANDOM, max_tokens=max_tokens)]


@cache
def undisturbed() -> list[Outcome]:
    with engine() as running:
        return [running.run(req)[0] for req in requests()]


def check(outcomes: list[Outcome]) -> None:
    for outcome, expected in zip(outcomes, undisturbed(), strict=True):
        assert outcome.token_ids == expected.token_ids
        check_logprobs(outcome, expected)


def check_logprobs(outcome: Outcome, expected: Outcome) -> None:
    if expected.prompt_logprobs is None:
        assert outcome.prompt_logprobs is None
        return
    assert outcome.prompt_logprobs is not None
    for entry, other in zip(outcome.prompt_logprobs, expected.prompt_logprobs, strict=True):
        assert (entry is None) == (other is None)
        if entry is not None and other is not None:
            assert entry.token_id == other.token_id
            assert entry.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert dict(entry.top) == pytest.approx(dict(other.top), abs=1e-4)


def test_they_are_the_models_own() -> None:
    model = tiny_model()
    for outcome, prompt, n_top in zip(undisturbed(), PROMPTS, N_TOP, strict=False):
        with torch.inference_mode():
            expected = model(torch.tensor([prompt])).logits[0].log_softmax(1)
        assert outcome.prompt_logprobs is not None
        first, *others = outcome.prompt_logprobs
        assert first is None
        assert [entry.token_id for entry in others if entry] == list(prompt[1:])
        for entry, row, (_, token_id) in zip(others, expected, pairwise(prompt), strict=False):
            assert entry is not None
            assert entry.logprob == pytest.approx(float(row[token_id]), abs=1e-4)
            top = row.topk(n_top)
            assert [token for token, _ in entry.top] == top.indices.tolist()
            assert [value for _, value in entry.top] == pytest.approx(top.values.tolist(), abs=1e-4)


def test_batched_is_alone() -> None:
    with engine() as running:
        check(running.run_at_once(*requests()))


@pytest.mark.parametrize("max_batch_tokens", [5, 7, 16])
def test_chunked_is_whole(max_batch_tokens: int) -> None:
    limits = roomy(max_running=5, max_batch_tokens=max_batch_tokens)
    with engine(limits=limits) as running:
        check(running.run_at_once(*requests()))


def test_a_block_of_positions_more_or_less_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "SCORED_AT_ONCE", 4)
    with engine() as running:
        check(running.run_at_once(*requests()))


@pytest.mark.parametrize("n_pages", [30, 37])
def test_preempted_is_undisturbed(n_pages: int) -> None:
    with engine(limits=roomy(n_pages=n_pages, max_batch_tokens=11)) as running:
        check(running.run_at_once(*requests()))
        assert running.core.stats().preemptions > 0


def test_preempted_amid_its_prompt_is_undisturbed() -> None:
    """A long prompt gives way to an older task before it is through. What it finds again is its
    own, and counts as computed."""
    long = request("long", random_ids(60, seed=9), max_tokens=4, prompt_logprobs=2)
    with engine() as running:
        (expected,) = running.run(long)

    async def play(running: Engine) -> Outcome:
        running.gate.close()
        old = asyncio.create_task(running.follow(request("old", SHARED, max_tokens=50)))
        await asyncio.sleep(0)
        running.gate.await_step()
        young = asyncio.create_task(running.follow(long))
        await asyncio.sleep(0)
        while not running.core.stats().preemptions:
            running.gate.step()
        assert running.core.stats().prompt_tokens == len(SHARED)  # of the old one alone
        running.core.abort("old")
        before = running.core.stats().steps
        running.gate.open()
        await old
        outcome = (await young).outcome
        assert running.core.stats().steps - before < 60 / 4  # not all of it over again
        return outcome

    with engine(limits=roomy(n_pages=23, max_running=4, max_batch_tokens=4)) as running:
        outcome = asyncio.run(play(running))
    assert outcome.token_ids == expected.token_ids
    assert outcome.cached_tokens == 0
    check_logprobs(outcome, expected)


@pytest.mark.parametrize("n_produced", [1, 8])
def test_failed_over_is_undisturbed_and_says_them_once(n_produced: int) -> None:
    with engine() as running:
        continued = [
            replace(req, produced_ids=before.token_ids[:n_produced])
            for req, before in zip(requests(), undisturbed(), strict=True)
        ]
        for outcome, expected in zip(running.run(*continued), undisturbed(), strict=True):
            assert outcome.token_ids == expected.token_ids[n_produced:]
            assert outcome.prompt_logprobs is None


def test_a_prefix_that_others_computed_is_computed_again() -> None:
    with engine() as running:
        running.run(*requests())
        outcomes = running.run(*requests())
        check(outcomes)
        assert [outcome.cached_tokens for outcome in outcomes] == [0, 0, 0, 0, 28]


def test_a_prefix_that_it_computed_is_found_by_others() -> None:
    with engine() as running:
        running.run(request("r", SHARED, prompt_logprobs=0))
        (outcome,) = running.run(request("s", SHARED))
    assert outcome.cached_tokens == 28


@pytest.mark.parametrize("max_batch_tokens", [16, 512])
def test_no_tokens_is_the_prompt_alone(max_batch_tokens: int) -> None:
    limits = roomy(max_batch_tokens=max_batch_tokens)
    with engine(limits=limits) as running:
        outcomes = running.run_at_once(*requests(max_tokens=0))
        stats = running.core.stats()
        (next_one,) = running.run(request("next", SHARED + (1,)))
    for outcome, expected in zip(outcomes, undisturbed(), strict=True):
        assert outcome.token_ids == ()
        assert outcome.finish_reason is FinishReason.LENGTH
        check_logprobs(outcome, expected)
    assert stats.tokens_generated == 0
    assert stats.prompt_tokens == sum(len(req.prompt_ids) for req in requests())
    assert next_one.cached_tokens == 28


def test_a_negative_number_is_refused() -> None:
    with engine() as running:
        (outcome,) = running.run(request("r", SHARED, prompt_logprobs=-1))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.param) == (
        ErrorKind.INVALID_REQUEST,
        "prompt_logprobs",
    )


def test_more_alternatives_than_tokens_are_all_of_them() -> None:
    with engine() as running:
        (outcome,) = running.run(request("r", SHARED[:3], GREEDY, prompt_logprobs=1000))
    assert outcome.prompt_logprobs is not None
    assert all(len(entry.top) == 128 for entry in outcome.prompt_logprobs[1:] if entry)
