"""A step that is launched before the last one's tokens are known changes none of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from deployments.engine.runner import PendingStep
from deployments.wire import FinishReason, GenerationRequest, SamplingParams
from tests.engine.drive import Outcome, Record, engine, random_ids, request, roomy
from tests.engine.test_laws import check, check_logprobs, every_sampling, requests

AHEAD = roomy(async_scheduling=True)
HOT = SamplingParams(temperature=2.5, top_k=50, top_p=0.95, min_p=0.001, seed=11)
IDS = random_ids(9, seed=6)


@every_sampling
def test_batched_is_alone(name: str) -> None:
    with engine(limits=AHEAD) as running:
        check(running.run_together(*requests(name)), name)


@every_sampling
def test_preempted_is_undisturbed(name: str) -> None:
    limits = replace(AHEAD, n_pages=12, max_batch_tokens=32)
    with engine(limits=limits) as running:
        check(running.run_together(*requests(name)), name)
        assert running.core.stats().preemptions > 0


@every_sampling
def test_a_prefix_hit_is_no_hit(name: str) -> None:
    with engine(limits=AHEAD) as running:
        running.run(*requests(name))
        check(running.run(*requests(name)), name)


@pytest.mark.parametrize(
    "one",
    [
        request("r", IDS, replace(HOT, repetition_penalty=1.05), max_tokens=100),
        request("r", IDS, replace(HOT, presence_penalty=1, frequency_penalty=1), max_tokens=100),
        request("r", IDS, replace(HOT, logprobs=2, sampled_logprobs=True), max_tokens=100),
        replace(request("r", IDS, HOT, max_tokens=100), min_tokens=50),
    ],
    ids=lambda one: f"{one.sampling.repetition_penalty} {one.sampling.logprobs} {one.min_tokens}",
)
def test_a_row_that_reads_what_was_drawn_stops_nobody(one: GenerationRequest) -> None:
    others = [request(f"{i}", random_ids(5, seed=20 + i), HOT, max_tokens=100) for i in range(7)]
    ends = frozenset(undisturbed(one).token_ids[:20])
    one = replace(one, stop_token_ids=tuple(ends)) if one.min_tokens else one
    expected = [undisturbed(each) for each in (one, *others)]
    with engine(limits=AHEAD) as running:
        runner = running.core._scheduler._runner
        launch_next, n_ahead = runner.launch_next, 0

        def count(step: PendingStep, rows: Sequence[int]) -> PendingStep:
            nonlocal n_ahead
            n_ahead += 1
            return launch_next(step, rows)

        runner.launch_next = count  # type: ignore[method-assign]
        outcomes = running.run_together(one, *others)
    assert [each.token_ids for each in outcomes] == [each.token_ids for each in expected]
    check_logprobs(outcomes[0], expected[0], 0)
    assert n_ahead >= 95


@pytest.mark.parametrize("is_async", [False, True])
def test_the_next_step_begins_before_the_last_ones_token_is_told(is_async: bool) -> None:
    one = request("r", IDS, HOT, max_tokens=5)
    with engine(limits=roomy(async_scheduling=is_async)) as running:
        running.gate.close()
        n = asyncio.run(running.steps_to_first_token(one, limit=3))
    assert n == (2 if is_async else 1)


def undisturbed(one: GenerationRequest) -> Outcome:
    with engine() as running:
        return running.run(one)[0]


def test_what_ends_while_its_next_step_is_computed_leaves_nothing_and_disturbs_nobody() -> None:
    long = [request(f"{i}", random_ids(5 + i, seed=i), HOT, max_tokens=40) for i in range(3)]
    expected = [undisturbed(one) for one in long]
    stop = expected[0].token_ids[7]
    ended = replace(long[0], stop_token_ids=(stop,))
    with engine(limits=AHEAD) as running:
        first, *others = running.run_together(ended, *long[1:])
    assert first.finish_reason is FinishReason.STOP
    assert first.token_ids == expected[0].token_ids[: expected[0].token_ids.index(stop) + 1]
    assert [one.token_ids for one in others] == [one.token_ids for one in expected[1:]]


def test_what_is_left_while_its_next_step_is_computed_disturbs_nobody() -> None:
    kept, left = (request(name, random_ids(7, seed=8), HOT, max_tokens=40) for name in "kl")
    left = replace(left, sampling=replace(HOT, seed=12))

    async def scenario() -> Record:
        async def leave() -> None:
            async for event in running.core.stream(left):
                if event.token_ids:
                    return

        following = asyncio.create_task(running.follow(kept))
        await leave()
        return await following

    with engine(limits=AHEAD) as running:
        record = asyncio.run(scenario())
    assert record.outcome.token_ids == undisturbed(kept).token_ids


@pytest.mark.parametrize("n_rows", [1, 3])
def test_a_step_that_fails_ahead_of_its_turn_costs_nobody_anything(n_rows: int) -> None:
    """Each fails for the first time, and not when it is launched by itself."""
    asked = [
        request(f"{i}", random_ids(5 + i, seed=i), HOT, max_tokens=20 + i) for i in range(n_rows)
    ]
    expected = [undisturbed(one).token_ids for one in asked]
    with engine(limits=AHEAD) as running:
        runner = running.core._scheduler._runner
        launch_next, n_failed = runner.launch_next, 0

        def fail(step: PendingStep, rows: Sequence[int]) -> PendingStep:
            nonlocal n_failed
            launch_next(step, rows)
            n_failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")

        runner.launch_next = fail  # type: ignore[method-assign]
        outcomes = running.run_together(*asked)
        stats = running.core.stats()
    assert [one.token_ids for one in outcomes] == expected
    assert n_failed == 1  # none is tried for a while
    assert stats.failed_steps == 0
