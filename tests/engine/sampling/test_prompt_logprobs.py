"""Log-probabilities of a prompt's tokens are the model's own, whatever its pages went through."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from deployments.contract.errors import ErrorKind
from deployments.contract.requests import SamplingParams
from deployments.engine.sampling import logprobs
from tests.engine import laws
from tests.engine.drive import GREEDY, Engine, Outcome, engine, random_ids, request, roomy
from tests.engine.workload import Workload, check_same
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


# One a prompt, and one that does not ask.
REQUESTS = [
    *(
        request("r", prompt, RANDOM, max_tokens=30, prompt_logprobs=n_top)
        for prompt, n_top in zip(PROMPTS, N_TOP, strict=True)
    ),
    request("silent", SHARED, RANDOM, max_tokens=30),
]
WORKLOAD = Workload(
    requests=REQUESTS,
    come=Engine.run_at_once,
    chunks=[{"max_batch_tokens": n, "max_running": 5} for n in (5, 7, 16)],
    few_pages=[{"n_pages": n, "max_batch_tokens": 11} for n in (30, 37)],
    cuts=(1, 8),
)


@pytest.mark.parametrize("law", [*laws.USUAL, laws.a_hit_is_no_hit])
def test_law(law: laws.Law) -> None:
    law(WORKLOAD)


def test_they_are_the_models_own() -> None:
    model = tiny_model()
    for outcome, prompt, n_top in zip(WORKLOAD.undisturbed, PROMPTS, N_TOP, strict=False):
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


def test_a_block_of_positions_more_or_less_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "SCORED_AT_ONCE", 4)
    laws.batched_is_alone(WORKLOAD)


def test_preempted_amid_its_prompt_is_undisturbed() -> None:
    """A long prompt gives way to an older task before it is through. What it finds again is its
    own, and counts as computed."""
    long = request("long", random_ids(60, seed=9), max_tokens=4, prompt_logprobs=2)

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
    assert outcome.cached_tokens == 0
    Workload(requests=[long]).check([outcome])


def test_a_prefix_that_it_computed_is_found_by_others() -> None:
    with engine() as running:
        running.run(request("r", SHARED, prompt_logprobs=0))
        (outcome,) = running.run(request("s", SHARED))
    assert outcome.cached_tokens == 28


@pytest.mark.parametrize("max_batch_tokens", [16, 512])
def test_no_tokens_is_the_prompt_alone(max_batch_tokens: int) -> None:
    limits = roomy(max_batch_tokens=max_batch_tokens)
    with engine(limits=limits) as running:
        outcomes = running.run_at_once(*(replace(req, max_tokens=0) for req in REQUESTS))
        stats = running.core.stats()
        (next_one,) = running.run(request("next", SHARED + (1,)))
    for outcome, whole in zip(outcomes, WORKLOAD.undisturbed, strict=True):
        check_same(outcome, replace(whole, token_ids=(), logprobs=()))
    assert stats.tokens_generated == 0
    assert stats.prompt_tokens == sum(len(req.prompt_ids) for req in REQUESTS)
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
