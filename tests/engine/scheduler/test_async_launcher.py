"""A step that is launched before the last one's tokens are known changes none of them."""

import asyncio
from dataclasses import replace
from functools import cache

import pytest
import torch

from deployments.contract.events import FinishReason
from deployments.contract.requests import (
    DryParams,
    GenerationRequest,
    MirostatParams,
    SamplingParams,
    ThinkingBudget,
)
from deployments.engine.needs.grammar import grammar_need
from deployments.engine.needs.grammar import matcher as matching
from deployments.engine.pending_step import PendingStep
from deployments.engine.tasks.batch import Batch
from deployments.text.grammar.grammar import from_regex
from tests.engine.drive import (
    PATIENCE_S,
    Engine,
    Outcome,
    Record,
    engine,
    random_ids,
    request,
    roomy,
)
from tests.engine.needs.test_slow_grammar import CONSTRAINED, FREE, deferred_masks
from tests.engine.test_laws_layers import needs_states
from tests.engine.workload import Workload, beside

AHEAD = roomy(async_scheduling=True)
HOT = SamplingParams(temperature=2.5, top_k=50, top_p=0.95, min_p=0.001, seed=11)
IDS = random_ids(9, seed=6)
MIROSTAT = MirostatParams(version=2, tau=3)
THINKING = ThinkingBudget(tokens=9, start_ids=(3,), end_ids=(7, 8, 9), open=True)


@pytest.fixture(autouse=True)
def _no_mask_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind one that is, as on a busy machine, the next step is launched in its turn."""
    monkeypatch.setattr(grammar_need, "MASK_GRACE_S", PATIENCE_S)


@cache
def others() -> Workload:
    """The requests that are the same beside each row."""
    prompts = [random_ids(5, seed=20 + i) for i in range(7)]
    return Workload(requests=[request("r", prompt, HOT, max_tokens=100) for prompt in prompts])


@pytest.mark.parametrize(
    "one",
    [
        request("repetition", IDS, replace(HOT, repetition_penalty=1.05), max_tokens=100),
        request(
            "presence and frequency",
            IDS,
            replace(HOT, presence_penalty=1, frequency_penalty=1),
            max_tokens=100,
        ),
        request("logprobs", IDS, replace(HOT, logprobs=2, sampled_logprobs=True), max_tokens=100),
        replace(request("min_tokens", IDS, HOT, max_tokens=100), min_tokens=50),
        request("prompt logprobs", IDS, HOT, max_tokens=100, prompt_logprobs=1),
        # The host has to know what was drawn before it can sample: the model does not wait for it.
        request("window", IDS, replace(HOT, presence_penalty=3, penalty_last_n=9), max_tokens=100),
        request("dry", IDS, replace(HOT, dry=DryParams(multiplier=1)), max_tokens=100),
        request("mirostat", IDS, replace(HOT, mirostat=MIROSTAT), max_tokens=100),
        request("bad words", IDS, replace(HOT, bad_words=((5, 6), (7,))), max_tokens=100),
        request("grammar", IDS, HOT, max_tokens=100, grammar=from_regex("([a-f]{3}-)*", "regex")),
        replace(request("thinking", IDS, HOT, max_tokens=100), thinking=THINKING),
    ],
    ids=lambda one: one.request_id,
)
def test_a_row_that_reads_what_was_drawn_stops_nobody(one: GenerationRequest) -> None:
    ends = frozenset(undisturbed(one).token_ids[:20]) if one.min_tokens else ()
    row = Workload(requests=[replace(one, stop_token_ids=tuple(ends))], come=Engine.run_at_once)
    assert run_ahead(beside(row, others())) >= 95


@pytest.mark.parametrize("n_shared", [0, 48])
def test_chunks_are_launched_ahead_like_decodes(n_shared: int) -> None:
    """Chunks of prompts that wait for what another one computes are launched ahead too."""
    shared = random_ids(n_shared, seed=5)
    asked = [
        request(f"{i}", shared + random_ids(90 + i, seed=i), HOT, max_tokens=20) for i in range(4)
    ]
    with engine(limits=replace(AHEAD, max_batch_tokens=16)) as running:
        ahead = counted(running)
        outcomes = running.run_together(*asked)
        n_steps = running.core.stats().steps
    Workload(requests=asked).check(outcomes)
    assert [outcome.cached_tokens for outcome in outcomes[1:]] == [n_shared] * 3
    assert n_steps > (4 * 90 + n_shared) // 16
    assert len(ahead) >= n_steps - 2


@needs_states
def test_chunks_of_a_model_with_states_do_not_wait_for_their_own_checkpoints() -> None:
    one = request("one", random_ids(90), HOT, max_tokens=20)
    with engine("qwen3_next", limits=replace(AHEAD, max_batch_tokens=16)) as running:
        ahead = counted(running)
        running.run(one)
        assert running.core.stats().checkpoints > 0
        assert len(ahead) >= running.core.stats().steps - 2


def undisturbed(one: GenerationRequest) -> Outcome:
    return Workload(requests=[one]).undisturbed[0]


def run_ahead(workload: Workload) -> int:
    """How many steps are launched ahead."""
    with workload.engine(async_scheduling=True) as running:
        ahead = counted(running)
        workload.check_on(running)
    return len(ahead)


def counted(running: Engine) -> list[int]:
    """How many rows each step has that is launched ahead from now on."""
    runner, n_rows = running.core._scheduler._runner, list[int]()
    launch_next = runner.launch_next

    def count(step: PendingStep, batch: Batch) -> PendingStep:
        n_rows.append(len(batch.tasks))
        return launch_next(step, batch)

    runner.launch_next = count  # type: ignore[method-assign]
    return n_rows


def test_rows_that_end_leave_the_others_launched_ahead() -> None:
    constrained = [
        request(f"{n}", IDS, HOT, max_tokens=n, grammar=from_regex("([a-f]{3}-)*", "regex"))
        for n in (5, 20, 40)
    ]
    assert run_ahead(Workload(requests=constrained)) >= 36


def test_a_row_that_waits_long_for_its_grammar_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "SLOW_MASK_S", -1.0)
    with engine(limits=AHEAD) as running:
        alone, free_alone = [running.run(req)[0] for req in (CONSTRAINED, FREE)]
        ahead, records = counted(running), (Record(), Record())
        events = running.core.run([CONSTRAINED, FREE])
        with deferred_masks(running):
            while not records[1].finished:
                index, event = next(events)
                records[index].put(event)
        for index, event in events:
            records[index].put(event)
    slow, free = (record.outcome for record in records)
    assert (slow.token_ids, free.token_ids) == (alone.token_ids, free_alone.token_ids)
    assert ahead.count(1) >= 15


@pytest.mark.parametrize("is_async", [False, True])
def test_the_next_step_begins_before_the_last_ones_token_is_told(is_async: bool) -> None:
    one = request("r", IDS, HOT, max_tokens=5)
    with engine(limits=roomy(async_scheduling=is_async)) as running:
        running.gate.close()
        n = asyncio.run(running.steps_to_first_token(one, limit=3))
    assert n == (2 if is_async else 1)


def test_what_ends_while_its_next_step_is_computed_leaves_nothing_and_disturbs_nobody() -> None:
    long = [request(f"{i}", random_ids(5 + i, seed=i), HOT, max_tokens=40) for i in range(3)]
    expected = [undisturbed(req) for req in long]
    stop = expected[0].token_ids[7]
    ended = replace(long[0], stop_token_ids=(stop,))
    with engine(limits=AHEAD) as running:
        first, *others = running.run_together(ended, *long[1:])
    assert first.finish_reason is FinishReason.STOP
    assert first.token_ids == expected[0].token_ids[: expected[0].token_ids.index(stop) + 1]
    assert [outcome.token_ids for outcome in others] == [
        outcome.token_ids for outcome in expected[1:]
    ]


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
    with engine(limits=AHEAD) as running:
        runner = running.core._scheduler._runner
        launch_next, n_failed = runner.launch_next, 0

        def fail(step: PendingStep, batch: Batch) -> PendingStep:
            nonlocal n_failed
            launch_next(step, batch)
            n_failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")

        runner.launch_next = fail  # type: ignore[method-assign]
        outcomes = running.run_together(*asked)
        stats = running.core.stats()
    Workload(requests=asked).check(outcomes)
    assert n_failed == 1  # none is tried for a while
    assert stats.failed_steps == 0
