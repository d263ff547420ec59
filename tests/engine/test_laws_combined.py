"""All that a request may ask for at once, on an engine where all that may disturb it happens at
once: chunks, preemptions, priorities, shared prefixes and a replica that died before."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.requests import (
    DryParams,
    GenerationRequest,
    MirostatParams,
    SamplingParams,
    ThinkingBudget,
)
from deployments.engine.limits import EngineLimits
from deployments.text.grammar.grammar import from_lark, from_regex
from tests.effort import tries
from tests.engine.drive import Record, engine, random_ids, request, roomy
from tests.models import alike, forgetful

END = 0  # the model's end token
SHARED = random_ids(22, seed=1)
STEERED = SamplingParams(
    temperature=2, seed=7, mirostat=MirostatParams(version=2, tau=3), logprobs=2
)
REMEMBERING = SamplingParams(
    temperature=2.5,
    seed=6,
    dry=DryParams(multiplier=2, allowed_length=0, last_n=30),
    xtc_probability=0.5,
    xtc_threshold=0.05,
    frequency_penalty=0.7,
    repetition_penalty=1.2,
    penalty_last_n=9,
    bad_words=((3,), (40, 41)),
)
# Pairs of letters in brackets, and then a word: what ends a thought may only follow a pair.
THOUGHT = from_lark('start: "[" pair* "]" word\npair: /[a-p][a-p]/\nword: /[q-z]{9,12}/', "g")
BUDGET = ThinkingBudget(tokens=7, start_ids=(ord("["),), end_ids=(ord("]"),))
WORDS = from_regex("([a-f]{3}-){4,6}[a-f]{3}", "regex")

REQUESTS = {
    "thought in a grammar": replace(
        request("a", SHARED, STEERED, max_tokens=30, grammar=THOUGHT), thinking=BUDGET
    ),
    "steered in a grammar": replace(
        request("b", (*SHARED[:13], 7), STEERED, max_tokens=30, grammar=WORDS), prompt_logprobs=2
    ),
    "remembering in a grammar": request(
        "c", random_ids(5, seed=2), REMEMBERING, max_tokens=40, grammar=WORDS, min_tokens=20
    ),
    "remembering thought": replace(
        request("d", (*SHARED, 9), REMEMBERING, max_tokens=24, prompt_logprobs=1),
        thinking=ThinkingBudget(tokens=6, start_ids=(5,), end_ids=(7, 8, 9), open=True),
    ),
    "steered": request("e", random_ids(37, seed=3), STEERED, max_tokens=21, prompt_logprobs=0),
    "prompt alone": request("f", (*SHARED, 9, 9, 1), max_tokens=0, prompt_logprobs=3),
    "plain": request("g", SHARED[:9], max_tokens=18),
    "repeating": request("h", random_ids(5, seed=4) * 3, max_tokens=32),
}
every_request = pytest.mark.parametrize("name", REQUESTS)


@cache
def undisturbed(name: str) -> tuple[TokenEvent, ...]:
    with engine(eos=frozenset({END}), model=forgetful()) as running:
        return tuple(event for _, event in running.core.run([REQUESTS[name]]))


def continued(name: str, n_produced: int) -> GenerationRequest:
    """The request as it goes on when its replica dies behind so many tokens."""
    if n_produced == 0:
        return REQUESTS[name]
    before = undisturbed(name)[:n_produced]
    produced = tuple(token_id for event in before for token_id in event.token_ids)
    one = replace(REQUESTS[name], produced_ids=produced, prompt_logprobs=None)
    if one.sampling.mirostat is None:
        return one
    mirostat = replace(one.sampling.mirostat, mu=before[-1].mirostat_mu)
    return replace(one, sampling=replace(one.sampling, mirostat=mirostat))


def check(name: str, n_produced: int, events: list[TokenEvent]) -> None:
    expected = undisturbed(name)[n_produced:]
    assert [event.token_ids for event in events] == [event.token_ids for event in expected]
    for event, other in zip(events, expected, strict=True):
        assert event.error is None
        assert event.finish_reason is other.finish_reason
        assert event.stop_token_id == other.stop_token_id
        assert event.mirostat_mu == pytest.approx(other.mirostat_mu, abs=1e-3)
        check_logprobs(event, other)


def check_logprobs(event: TokenEvent, other: TokenEvent) -> None:
    for ours, theirs in (
        (event.logprobs, other.logprobs),
        (event.prompt_logprobs, other.prompt_logprobs),
    ):
        assert (ours is None) == (theirs is None)
        for entry, expected in zip(ours or (), theirs or (), strict=True):
            assert (entry is None) == (expected is None)
            if entry is not None and expected is not None:
                assert entry.token_id == expected.token_id
                assert entry.logprob == pytest.approx(expected.logprob, abs=1e-4)
                assert dict(entry.top) == pytest.approx(dict(expected.top), abs=1e-4)


@every_request
def test_undisturbed_is_what_was_asked_for(name: str) -> None:
    ids = [token_id for event in undisturbed(name) for token_id in event.token_ids]
    assert undisturbed(name)[-1].error is None
    if name == "thought in a grammar":
        assert ids.index(ord("]")) == 9  # 7 would be amid a pair
    elif name == "remembering thought":
        assert ids[6:9] == [7, 8, 9]
    elif name.endswith("in a grammar"):
        assert undisturbed(name)[-1].finish_reason is FinishReason.STOP
        assert set(ids) <= {END, *b"abcdef-"}


@every_request
def test_failed_over_behind_any_token_is_undisturbed(name: str) -> None:
    n = len(undisturbed(name))
    with engine(eos=frozenset({END}), model=forgetful()) as running:
        for n_produced in range(0, n, 3):
            events = [event for _, event in running.core.run([continued(name, n_produced)])]
            check(name, n_produced, events)


def disturbed(
    limits: EngineLimits,
    requests: Sequence[GenerationRequest],
    draft: PreTrainedModel | None = None,
) -> tuple[list[list[TokenEvent]], int]:
    """Each one's events when all wait before the first step ends; and how many were preempted."""

    def until_all_wait() -> Iterator[GenerationRequest]:
        running.gate.close()
        yield from requests
        running.gate.open()

    records = [Record() for _ in requests]
    ends = frozenset({END})
    with engine(eos=ends, model=forgetful(), limits=limits, draft=draft) as running:
        for index, event in running.core.run(until_all_wait()):
            records[index].put(event)
        return [record.events for record in records], running.core.stats().preemptions


N = len(REQUESTS)


@settings(max_examples=tries(12, 50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    names=st.permutations(list(REQUESTS)),
    priorities=st.lists(st.integers(-1, 1), min_size=N, max_size=N),
    cuts=st.lists(st.integers(0, 30), min_size=N, max_size=N),
    n_pages=st.integers(16, 40),
    max_running=st.integers(1, N),
    max_batch_tokens=st.integers(N, 40),
    is_async=st.booleans(),
    draft_tokens=st.integers(0, 6),
    has_draft_model=st.booleans(),
)
def test_whatever_happens_at_once_each_is_undisturbed(
    names: list[str],
    priorities: list[int],
    cuts: list[int],
    n_pages: int,
    max_running: int,
    max_batch_tokens: int,
    is_async: bool,
    draft_tokens: int,
    has_draft_model: bool,
) -> None:
    skipped = [min(cut, len(undisturbed(n)) - 1) for n, cut in zip(names, cuts, strict=True)]
    requests = [
        replace(continued(name, n), priority=priority)
        for name, n, priority in zip(names, skipped, priorities, strict=True)
    ]
    limits = roomy(
        n_pages=n_pages,
        max_running=max_running,
        max_batch_tokens=max_batch_tokens,
        async_scheduling=is_async,
        draft_tokens=draft_tokens,
        draft_min=1,
    )
    draft = alike(forgetful()) if has_draft_model and draft_tokens else None
    found = disturbed(limits, requests, draft)[0]
    for name, n, events in zip(names, skipped, found, strict=True):
        check(name, n, events)


@every_request
def test_what_gives_way_to_all_others_is_undisturbed(name: str) -> None:
    others = [replace(req, priority=-1) for req in REQUESTS.values() if req is not REQUESTS[name]]
    preemptions = 0
    for n_pages in (16, 21, 26):
        limits = roomy(n_pages=n_pages, max_batch_tokens=16)
        (events, *_), n = disturbed(limits, [REQUESTS[name], *others])
        check(name, 0, events)
        preemptions += n
    assert preemptions
