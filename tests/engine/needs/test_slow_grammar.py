"""Who waits for a grammar that takes long, and how long it may take."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import SamplingParams
from deployments.engine.needs.grammar import grammar_need
from deployments.engine.needs.grammar import matcher as matching
from deployments.engine.needs.grammar.grammar_need import GrammarNeed
from deployments.engine.needs.grammar.matcher import GrammarMatcher
from deployments.text.grammar import matcher
from deployments.text.grammar.grammar import from_lark, from_regex
from tests.engine import laws
from tests.engine.drive import PATIENCE_S, Engine, Record, engine, random_ids, request
from tests.engine.needs.test_grammar import workload

AMBIGUOUS = from_lark('start: e\ne: e e | "a" | "b" | " " | e "x" e | e e e', "grammar")
WORDS = SamplingParams(temperature=2.5, seed=11)


@contextmanager
def masks_that_wait(monkeypatch: pytest.MonkeyPatch, is_known: bool) -> Iterator[None]:
    """Every mask is computed between two steps: as it took long before, or as it is late."""
    with monkeypatch.context() as changed:
        changed.setattr(matching, "SLOW_MASK_S", -1.0 if is_known else 1e9)
        changed.setattr(grammar_need, "MASK_GRACE_S", 0.0)
        yield


@pytest.mark.parametrize(
    ("grammar", "sampling", "is_known"),
    [("json", "random", False), ("regex", "greedy", True), ("lark", "truncated", True)],
)
@pytest.mark.parametrize("changes", [{}, {"draft_tokens": 5}, {"async_scheduling": True}])
def test_a_row_that_waits_for_its_grammar_says_what_it_says_alone(
    monkeypatch: pytest.MonkeyPatch,
    grammar: str,
    sampling: str,
    is_known: bool,
    changes: dict[str, float],
) -> None:
    """Batched, chunked, preempted and failed over at once."""
    limited = workload(grammar, sampling).on(n_pages=29, max_batch_tokens=12, **changes)
    disturbed = replace(limited, cuts=[5], n_accepted=0)
    assert disturbed.undisturbed  # is computed first
    with masks_that_wait(monkeypatch, is_known):
        with disturbed.engine() as running:
            disturbed.check_on(running)
        laws.failed_over_is_undisturbed(disturbed)


class Panic(BaseException):
    """A failure like that of a library in Rust."""


@pytest.mark.parametrize("changes", [{}, {"draft_tokens": 5}, {"async_scheduling": True}])
def test_a_mask_that_fails_costs_nobody_anything(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, float]
) -> None:
    compute, number = GrammarMatcher.compute_mask, itertools.count()

    def fail(grammar: GrammarMatcher) -> None:
        if (n := next(number)) in (0, 9, 20):
            raise Panic if n == 9 else MemoryError
        compute(grammar)

    disturbed = workload("regex", "random").on(**changes)
    assert disturbed.undisturbed  # is computed first
    monkeypatch.setattr(GrammarMatcher, "compute_mask", fail)
    with disturbed.engine() as running:
        disturbed.check(running.run_at_once(*disturbed.requests))
        assert running.core.stats().failed_steps == 3


@contextmanager
def deferred_masks(running: Engine) -> Iterator[None]:
    """No mask that takes long is computed meanwhile."""
    (need,) = (need for need in running.core._needs if isinstance(need, GrammarNeed))
    assert need.compiler._tools is not None
    worker = need.compiler._tools[1]
    begun, free = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert free.wait(PATIENCE_S)

    worker.begin_long(wait, -0.5)
    assert begun.wait(PATIENCE_S)
    yield
    free.set()


CONSTRAINED = request(
    "slow", random_ids(13, seed=1), WORDS, max_tokens=9, grammar=from_regex("[a-f]+", "regex")
)
FREE = request("free", random_ids(5, seed=2), WORDS, max_tokens=20)


def test_the_others_go_on_while_a_row_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SLOW_MASK_S", -1.0)
    with engine() as running:
        alone, free_alone = [running.run(req)[0] for req in (CONSTRAINED, FREE)]
        records = Record(), Record()
        events = running.core.run([CONSTRAINED, FREE])
        with deferred_masks(running):
            while not records[1].finished:
                index, event = next(events)
                records[index].put(event)
            assert records[0].events == []
        for index, event in events:
            records[index].put(event)
    slow, free = (record.outcome for record in records)
    assert (slow.token_ids, slow.finish_reason) == (alone.token_ids, FinishReason.LENGTH)
    assert free.token_ids == free_alone.token_ids


def test_a_request_can_be_left_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SLOW_MASK_S", -1.0)
    with engine() as running:
        running.run(CONSTRAINED)
        with deferred_masks(running):
            reasons = {}
            for index, event in running.core.run([CONSTRAINED, FREE]):
                reasons[index] = event.finish_reason
                if index == 1 and event.finish_reason is not None:
                    running.core.abort("slow")
            assert reasons == {0: FinishReason.ABORT, 1: FinishReason.LENGTH}
            assert running.core.stats().pages_used == 0


def test_a_grammar_ends_where_its_next_token_takes_more_work_than_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matcher, "STEP_MAX_ITEMS", 300)
    ambiguous = request(
        "r", random_ids(13, seed=1), WORDS, max_tokens=90, min_tokens=80, grammar=AMBIGUOUS
    )
    free = request("free", random_ids(5, seed=2), WORDS, max_tokens=90)
    with engine() as running:
        alone = running.run(ambiguous)[0]
        beside, other = running.run_at_once(ambiguous, free)
    assert alone.error is not None
    assert alone.error.kind is ErrorKind.INVALID_REQUEST
    assert alone.error.message.startswith(
        "grammar: its next token takes more work than is allowed: parser error: Too many items"
    )
    assert 0 < len(alone.token_ids) < 80
    assert beside == alone
    assert other.error is None
