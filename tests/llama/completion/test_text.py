"""The line rules that end a text: exact for every grouping of its tokens."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.events import FinishReason, TokenEvent, TokenLogprob
from deployments.ingress.llamacpp.timings import timings
from deployments.llama.completion.text import CompletionText, LineRules, single_tokens
from deployments.text.stream import TextDelta, fold
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.text.cards import card

TOKENIZER = TextTokenizer(card())


def events(text: str, cuts: Sequence[int] = ()) -> list[TokenEvent]:
    """The text's tokens, cut at these indices, and an end at the limit."""
    ids = TOKENIZER.encode(text, False)
    indices = sorted({0, len(ids), *(cut % (len(ids) + 1) for cut in cuts)})
    parts = [ids[start:end] for start, end in itertools.pairwise(indices)] or [[]]
    scored = [
        TokenEvent(
            token_ids=tuple(part), logprobs=tuple(TokenLogprob(token_id, -1.0) for token_id in part)
        )
        for part in parts
    ]
    return [*scored[:-1], replace(scored[-1], finish_reason=FinishReason.STOP)]


def told(stream: CompletionText, given_events: list[TokenEvent]) -> TextDelta:
    """All until the end, which comes at most once."""

    def deltas() -> Iterator[TextDelta]:
        for event in given_events:
            delta = stream.push(event)
            yield delta
            if delta.finish_reason is not None:
                return

    return fold(deltas())


def indented(text: str, least: int, cuts: Sequence[int] = (), stop: str = "") -> TextDelta:
    rules = LineRules(indent=least)
    stops = [stop] if stop else []
    return told(CompletionText(TOKENIZER, stops, rules), events(text, cuts))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\n  b\nc", "a\n  b\n"),
        ("a\n  b\n c d", "a\n  b\n "),
        ("  a\n\tb", "  a\n\t"),
        ("a\n\n  \n  b\n\nc", "a\n\n  \n  b\n\n"),
        ("a\r\n  b\r\n\r\nc", "a\r\n  b\r\n\r\n"),
    ],
)
def test_a_line_with_less_white_space_ends_the_text_before_its_first_character(
    text: str, kept: str
) -> None:
    delta = indented(text, 2)
    assert delta.text == kept
    assert delta.finish_reason is FinishReason.LENGTH
    assert all(entry.offset < len(kept) for entry in delta.logprobs)


@pytest.mark.parametrize("text", ["abc", "a\n  b\n    c\n", "a\n\n\n", ""])
def test_enough_white_space_ends_nothing(text: str) -> None:
    delta = indented(text, 2)
    assert (delta.text, delta.finish_reason) == (text, FinishReason.STOP)


@given(
    st.text(alphabet=" \nab\u65e5", max_size=40),
    st.integers(1, 3),
    st.lists(st.integers(0, 50), max_size=8),
    st.sampled_from(["", "b", "a\n"]),
)
def test_how_the_tokens_came_changes_nothing(
    text: str, least: int, cuts: list[int], stop: str
) -> None:
    assert indented(text, least, cuts, stop) == indented(text, least, (), stop)


def clocked(rules: LineRules, *times: float) -> CompletionText:
    """Its clock shows 0 when it is made, and each of the times at a push."""
    return CompletionText(TOKENIZER, [], rules, iter((0.0, *times)).__next__)


def test_time_ends_a_text_that_has_a_second_line() -> None:
    rules = LineRules(predict_s=1.0)
    parts = events("a\nbc", cuts=[1, 2, 3])
    assert told(clocked(rules, 5, 5.5, 6.5, 9), parts).text == "a\nb"
    assert told(clocked(rules, 5, 5.5, 5.9, 6), parts).text == "a\nbc"
    one_line = events("abc", cuts=[1, 2])
    assert told(clocked(rules, 5, 15, 25), one_line).text == "abc"


def test_an_end_by_time_is_a_limit_and_keeps_what_was_held_back() -> None:
    rules = LineRules(predict_s=1.0)
    stream = CompletionText(TOKENIZER, ["bx"], rules, iter((0.0, 0.0, 0.1, 2.0)).__next__)
    delta = told(stream, events("a\nb", cuts=[1, 2]))
    assert delta.text == "a\nb"
    stream = CompletionText(TOKENIZER, [], rules, iter((0.0, 0.0, 0.1, 2.0)).__next__)
    delta = told(stream, events("a\nbc", cuts=[1, 2, 3]))
    assert (delta.text, delta.finish_reason) == ("a\nb", FinishReason.LENGTH)


def test_a_failure_stays_one_however_late() -> None:
    error = RequestError(ErrorKind.UNAVAILABLE, "gone")
    event = TokenEvent(finish_reason=FinishReason.ERROR, error=error)
    delta = told(clocked(LineRules(predict_s=1.0), 2.0), [event])
    assert (delta.finish_reason, delta.error) == (FinishReason.ERROR, error)


def test_an_event_taken_apart_says_the_same() -> None:
    [whole] = events("Hello world")
    whole = replace(whole, stop_token_id=whole.token_ids[-1], cached_tokens=3)
    parts = list(single_tokens(whole))
    assert [part.token_ids for part in parts] == [(token_id,) for token_id in whole.token_ids]
    assert [part.finish_reason for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1].stop_token_id == whole.stop_token_id
    assert sum((part.logprobs or () for part in parts), ()) == whole.logprobs


def test_the_timings_are_of_prompt_and_steps() -> None:
    stream = clocked(LineRules(indent=1), 2.0, 2.5, 3.0)
    delta = replace(told(stream, events("abc", cuts=[1, 2])), cached_tokens=6)
    assert timings(stream, delta, prompt_tokens=10) == {
        "cache_n": 6,
        "prompt_n": 4,
        "prompt_ms": 2000,
        "prompt_per_token_ms": 500,
        "prompt_per_second": 2,
        "predicted_n": 3,
        "predicted_ms": 1000,
        "predicted_per_token_ms": 500,
        "predicted_per_second": 2,
    }


def test_timings_of_nothing_are_nought() -> None:
    stream = CompletionText(TOKENIZER, [], clock=lambda: 1.0)
    assert set(timings(stream, TextDelta(), prompt_tokens=0).values()) == {0}
