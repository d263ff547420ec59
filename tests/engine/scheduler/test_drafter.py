"""Drafts change how many steps a sequence takes, and nothing of what comes of it."""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from deployments.contract.events import FinishReason
from deployments.contract.requests import (
    DryParams,
    GenerationRequest,
    MirostatParams,
    SamplingParams,
    ThinkingBudget,
)
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU
from deployments.engine.scheduler.prefill_pacer import PrefillPacer
from deployments.engine.tasks.ngram_drafts import MAX_INDEXED_AT_ONCE, NgramIndex
from tests import effort
from tests.engine import laws, test_laws
from tests.engine.drive import GREEDY, Engine, random_ids, request
from tests.engine.scheduler.repeating import N_NEW, PERIOD, every_repeating, repeating
from tests.engine.workload import Workload, beside, check_same

REPEATING = repeating("greedy").requests[0]
THINKING = ThinkingBudget(tokens=9, start_ids=(39,), end_ids=PERIOD[1:4])


def drafting(**changes: float | None) -> AbstractContextManager[Engine]:
    return repeating("greedy").engine(draft_tokens=5, **changes)


@every_repeating
def test_each_accepted_token_saves_a_step(name: str) -> None:
    laws.each_accepted_token_saves_a_step(repeating(name))


@every_repeating
@pytest.mark.parametrize("law", [laws.preempted_is_undisturbed, laws.a_failed_step_changes_nothing])
def test_law_where_tokens_are_drafted(law: laws.Law, name: str) -> None:
    law(repeating(name).on(draft_tokens=5))


@pytest.mark.parametrize("architecture", ["mistral", "gemma2", "gpt_oss", "phi3_longrope"])
def test_windows_see_what_was_accepted_alone(architecture: str) -> None:
    laws.drafted_is_plain(repeating("greedy", architecture))


@cache
def others() -> Workload:
    return replace(repeating("greedy"), requests=test_laws.workload("penalties").requests)


@every_repeating
def test_among_others_drafted_is_plain(name: str) -> None:
    drafting = {"draft_tokens": 5, "max_batch_tokens": 16}
    laws.drafted_is_plain(replace(beside(repeating(name), others()), drafting=drafting))


@cache
def short_ones() -> Workload:
    prompts = [random_ids(6, seed=i) for i in range(MAX_DRAFTED_STEP_CPU)]
    requests = [request("short", prompt, max_tokens=9) for prompt in prompts]
    return replace(repeating("greedy"), requests=requests)


@every_repeating
def test_behind_steps_that_were_launched_ahead_drafted_is_plain(name: str) -> None:
    workload = beside(repeating(name), short_ones()).on(draft_tokens=5, max_running=32)
    laws.launched_ahead_is_in_turns(replace(workload, come=Engine.run_at_once))


def asked(name: str, **changes: object) -> GenerationRequest:
    sampling = replace(GREEDY, **changes)  # type: ignore[arg-type]
    return replace(REPEATING, request_id=name, sampling=sampling)


@pytest.mark.parametrize(
    "one",
    [
        replace(REPEATING, sampling=replace(GREEDY, dry=DryParams(multiplier=0.5))),
        replace(
            REPEATING,
            sampling=SamplingParams(seed=3, mirostat=MirostatParams(version=2, tau=0.1)),
        ),
    ],
)
def test_nothing_is_guessed_where_a_draw_changes_what_the_next_one_depends_on(
    one: GenerationRequest,
) -> None:
    with drafting() as running:
        outcomes = running.run(one)
        assert running.core.stats().drafted_tokens == 0
    replace(repeating("greedy"), requests=[one]).check(outcomes)


@pytest.mark.parametrize(
    "one",
    [
        asked("logprobs", logprobs=1),
        asked("bias", logit_bias=((PERIOD[0], 0.5),)),
        replace(asked("min_tokens"), stop_token_ids=(PERIOD[2],), min_tokens=N_NEW - 1),
        replace(asked("prompt logprobs"), prompt_logprobs=1),
        asked("repetition", repetition_penalty=1.05),
        asked("frequency", frequency_penalty=0.05, presence_penalty=0.1, logprobs=2),
        asked("window", repetition_penalty=1.1, frequency_penalty=0.1, penalty_last_n=7),
        asked("narrow window", frequency_penalty=1, penalty_last_n=3),
        asked("bad words", bad_words=((PERIOD[0], PERIOD[2]), (*PERIOD[:3],), (9,))),
        replace(asked("thinking"), thinking=THINKING),
    ],
    ids=lambda one: one.request_id,
)
def test_whatever_reads_tokens_alone_is_drafted(one: GenerationRequest) -> None:
    laws.drafted_is_plain(replace(repeating("greedy"), requests=[one]))


def test_drafts_are_no_prompts_to_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int, float]] = []
    monkeypatch.setattr(PrefillPacer, "observe", lambda _, *step: steps.append(step))
    with drafting(max_batch_tokens=16) as running:
        running.run(REPEATING)
        assert running.core.stats().accepted_tokens > 0
    assert sum(n_tokens for _, n_tokens, _ in steps) == len(REPEATING.prompt_ids)


def test_an_end_among_accepted_tokens_ends_the_sequence() -> None:
    expected = repeating("greedy").undisturbed[0].token_ids
    for index, token_id in enumerate(expected):
        if index and index % 7 == 0:
            one = replace(REPEATING, stop_token_ids=(token_id,))
            with drafting() as running:
                (outcome,) = running.run(one)
                stats = running.core.stats()
            assert outcome.token_ids == expected[: expected.index(token_id) + 1]
            assert outcome.finish_reason is FinishReason.STOP
            assert outcome.stop_token_id == token_id
            assert stats.steps == len(outcome.token_ids) - stats.accepted_tokens


def test_pages_of_wrong_drafts_are_given_back() -> None:
    """Pages that are found later were computed from accepted tokens."""
    workload = repeating("cut").on(draft_tokens=5)
    with workload.engine() as running:
        workload.check(running.run(*workload.requests))
        again = running.run(*workload.requests)
        assert running.core.stats().drafted_tokens > running.core.stats().accepted_tokens
    workload.check(again)
    assert [outcome.cached_tokens for outcome in again] == [16, 16, 8]


@pytest.mark.skipif(effort.device != "cpu", reason="a GPU has room beside them")
def test_many_rows_leave_no_room_for_drafts() -> None:
    with drafting(max_running=32) as running:
        outcomes = running.run_at_once(*[REPEATING] * 17)
        assert running.core.stats().drafted_tokens == 0
    for outcome in outcomes:
        check_same(outcome, repeating("greedy").undisturbed[0])


@pytest.mark.parametrize(
    ("said", "most", "expected"),
    [
        ((1, 2, 3, 4, 5, 1, 2, 3), 4, (4, 5, 1, 2)),
        ((1, 2, 3, 4, 5, 1, 2, 3), 1, (4,)),
        ((1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3), 2, (5, 1)),  # where it stood last
        ((7, 1, 2, 1, 2, 1), 5, (2, 1, 2, 1, 2)),
        ((9, 9, 9, 9), 3, (9, 9, 9)),
        ((9, 9, 9), 3, ()),
        ((1, 2), 3, ()),
        ((1, 2, 3, 4, 5, 6, 7, 2, 3), 3, ()),
    ],
)
def test_what_followed_the_last_words_before_is_found(
    said: tuple[int, ...], most: int, expected: tuple[int, ...]
) -> None:
    ids = np.array(said, dtype=np.int64)
    assert tuple(NgramIndex().propose(ids, len(ids), most)) == expected
    growing = NgramIndex()
    for n in range(len(ids)):
        growing.propose(ids, n, most)
    assert tuple(growing.propose(ids, len(ids), most)) == expected


def test_a_long_prompt_is_taken_in_by_parts() -> None:
    ids = np.arange(2 * MAX_INDEXED_AT_ONCE + 9, dtype=np.int64)
    ids[-3:] = (5, 6, 7)
    index = NgramIndex()
    found = [tuple(index.propose(ids, len(ids), 2)) for _ in range(4)]
    assert found == [(), (), (8, 9), (8, 9)]


def test_a_draft_that_was_wrong_is_waited_for_longer_each_time() -> None:
    ids = np.full(200, 9, dtype=np.int64)
    index, tried = NgramIndex(), []
    for n in range(4, 100):
        if len(found := index.propose(ids, n, 4)):
            tried.append((n, len(found)))
            index.learn(len(found), 0, n + 1)
    assert tried[:6] == [(4, 4), (6, 1), (9, 1), (14, 1), (23, 1), (40, 1)]
    index.learn(1, 1, 100)
    assert [len(index.propose(ids, n, 4)) for n in (100, 101)] == [2, 2]
    index.learn(2, 2, 104)
    assert len(index.propose(ids, 104, 8)) == 4
