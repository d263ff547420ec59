"""Events that are merged say what they said one by one."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.events import CacheSource, FinishReason, TokenEvent, TokenLogprob, merge
from deployments.contract.outputs import Vectors
from deployments.model.channel_server import gather

BY_SOURCE = ((CacheSource.DEVICE, 2), (CacheSource.DISK, 6))


def events_of(n: int, *, logprobs: bool, ending: TokenEvent) -> list[TokenEvent]:
    """`n` events of one token each and a last one."""
    produced = [
        TokenEvent(
            token_ids=(token_id,),
            logprobs=(TokenLogprob(token_id, -1.0),) if logprobs else None,
            cached_tokens=8,
            cached_by_source=BY_SOURCE,
        )
        for token_id in range(n)
    ]
    return [*produced, ending]


ENDINGS = [
    TokenEvent(finish_reason=FinishReason.ABORT),
    TokenEvent(
        token_ids=(99,),
        finish_reason=FinishReason.STOP,
        stop_token_id=99,
        cached_tokens=8,
        cached_by_source=BY_SOURCE,
    ),
]


@given(
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from(ENDINGS),
    st.sets(st.integers(1, 12)),
)
def test_merging_in_parts_is_merging_at_once(
    n: int, logprobs: bool, ending: TokenEvent, cuts: set[int]
) -> None:
    events = events_of(n, logprobs=logprobs, ending=ending)
    indices = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    parts = [merge(events[start:end]) for start, end in pairwise(indices)]
    assert merge(parts) == merge(events)


@pytest.mark.parametrize("gather_s", [0.0, 1e9], ids=["none", "all"])
def test_what_a_replica_gathers_begins_and_ends_as_soon(
    gather_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gathered() -> list[TokenEvent]:
        async def given() -> AsyncGenerator[TokenEvent, None]:
            for event in events:
                yield event

        return [event async for event in gather(given())]

    monkeypatch.setattr("deployments.model.channel_server.GATHER_S", gather_s)
    events = events_of(12, logprobs=True, ending=ENDINGS[1])
    said = asyncio.run(gathered())
    assert said == (events if gather_s == 0 else [events[0], merge(events[1:])])


def test_of_a_prompt_the_newest_is_told() -> None:
    events = [TokenEvent(prompt_tokens=n, cached_tokens=4) for n in (4, 12, 20)]
    scored = TokenEvent(token_ids=(1,), prompt_logprobs=(None,), cached_tokens=4)
    merged = merge([*events, scored])
    assert (merged.prompt_tokens, merged.prompt_logprobs) == (20, (None,))
    assert merge([scored, TokenEvent(token_ids=(2,))]).prompt_tokens is None


@pytest.mark.parametrize("ending", ENDINGS, ids=str)
def test_a_merged_event_says_all_that_its_parts_say(ending: TokenEvent) -> None:
    merged = merge(events_of(3, logprobs=True, ending=ending))
    assert merged.token_ids == (0, 1, 2, *ending.token_ids)
    assert merged.logprobs is not None
    assert [entry.token_id for entry in merged.logprobs] == [0, 1, 2]
    assert (merged.finish_reason, merged.stop_token_id) == (
        ending.finish_reason,
        ending.stop_token_id,
    )
    assert (merged.cached_tokens, merged.cached_by_source) == (8, BY_SOURCE)


def test_nobody_asked_for_logprobs_and_none_come() -> None:
    assert merge(events_of(3, logprobs=False, ending=ENDINGS[1])).logprobs is None


def test_what_is_said_once_and_what_is_said_last_both_stay() -> None:
    said = (None, TokenLogprob(4, -0.5))
    first = TokenEvent(token_ids=(1,), prompt_logprobs=said, mirostat_mu=1.0)
    events = [first, TokenEvent(token_ids=(2,), mirostat_mu=2.0), ENDINGS[0]]
    for cut in (1, 2):
        merged = merge([merge(events[:cut]), merge(events[cut:])])
        assert (merged.prompt_logprobs, merged.mirostat_mu) == (said, 2.0)


def test_vectors_that_came_in_parts_are_joined() -> None:
    parts = [Vectors(1, b"\0" * 8), Vectors(2, b"\1" * 16)]
    events = [TokenEvent(vectors=part) for part in parts]
    joined = merge([*events, TokenEvent(finish_reason=FinishReason.STOP)]).vectors
    assert joined == Vectors(3, b"\0" * 8 + b"\1" * 16)
    assert joined.size == 2
