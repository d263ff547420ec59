"""Token events become the same text however they are cut, with counts and log-probabilities."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.events import FinishReason, TokenEvent, TokenLogprob
from deployments.text.dialects.dialect import ReplyContext
from deployments.text.dialects.parsing.pieces import CallArguments, ContentPiece, Piece, Thought
from deployments.text.dialects.registry import DIALECTS
from deployments.text.stream import TextDelta, TextStream, fold, join_pieces
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool
from tests.text.cards import byte_level, card, token_id

TOKENIZER = TextTokenizer(card())
END = token_id(byte_level(), "<|im_end|>")


def events(ids: Sequence[int], cuts: list[int], logprobs: bool) -> list[TokenEvent]:
    """The ids, then the end token, in chunks."""
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    parts = [tuple(ids[a:b]) for a, b in itertools.pairwise(edges)]
    made = [
        TokenEvent(token_ids=part, logprobs=scored(part, logprobs), cached_tokens=3)
        for part in parts[:-1]
    ]
    last = (*parts[-1], END)
    end = TokenEvent(
        token_ids=last,
        logprobs=scored(last, logprobs),
        finish_reason=FinishReason.STOP,
        stop_token_id=END,
        cached_tokens=3,
    )
    return [*made, end]


def scored(ids: tuple[int, ...], wanted: bool) -> tuple[TokenLogprob, ...] | None:
    return tuple(TokenLogprob(token_id, -1.0) for token_id in ids) if wanted else None


def read(stream: TextStream, made: list[TokenEvent]) -> list[TextDelta]:
    deltas = []
    for event in made:
        deltas.append(stream.push(event))
        if deltas[-1].finish_reason is not None:
            break
    return deltas


@given(
    ids=st.lists(st.integers(0, 399), max_size=20),
    cuts=st.lists(st.integers(0, 50)),
    stops=st.lists(st.sampled_from(["a", "st", "\n", "H", "\ufffd"]), max_size=2),
    min_tokens=st.integers(0, 8),
)
def test_cuts_do_not_change_the_answer(
    ids: list[int], cuts: list[int], stops: list[str], min_tokens: int
) -> None:
    ids = [token_id for token_id in ids if token_id != END]
    one, many = (
        fold(
            read(
                TextStream(TOKENIZER, stops=stops, min_tokens=min_tokens),
                events(ids, where, True),
            )
        )
        for where in ([], cuts)
    )
    assert one == many


@given(ids=st.lists(st.integers(2, 399), max_size=20), cuts=st.lists(st.integers(0, 50)))
def test_without_stops_the_text_is_that_of_all_ids(ids: list[int], cuts: list[int]) -> None:
    deltas = read(TextStream(TOKENIZER), events(ids, cuts, True))
    whole = fold(deltas)
    assert whole.text == TOKENIZER.decode(ids)
    assert whole.output_tokens == len(ids) + 1
    assert [entry.token.token_id for entry in whole.logprobs] == ids
    assert (whole.finish_reason, whole.stop, whole.cached_tokens) == (FinishReason.STOP, END, 3)


@given(ids=st.lists(st.integers(2, 399), max_size=20), cuts=st.lists(st.integers(0, 50)))
def test_logprobs_come_with_their_text(ids: list[int], cuts: list[int]) -> None:
    released = 0
    for delta in read(TextStream(TOKENIZER, stops=["zz"]), events(ids, cuts, True)):
        released += len(delta.text)
        assert all(entry.offset <= released for entry in delta.logprobs)


def test_a_stop_across_tokens_ends_the_sequence_and_its_count() -> None:
    ids = TOKENIZER.encode("Hello world and more", False)
    stream = TextStream(TOKENIZER, stops=["lo w"])
    deltas = read(stream, [TokenEvent(token_ids=(i,), logprobs=scored((i,), True)) for i in ids])
    answer = fold(deltas)
    assert (answer.text, answer.stop, answer.finish_reason) == ("Hel", "lo w", FinishReason.STOP)
    assert "lo w" in TOKENIZER.decode(ids[: answer.output_tokens])
    assert "lo w" not in TOKENIZER.decode(ids[: answer.output_tokens - 1])
    assert all(entry.offset < len(answer.text) for entry in answer.logprobs)


def test_a_stop_may_be_included() -> None:
    ids = tuple(TOKENIZER.encode("Hello world", False))
    stream = TextStream(TOKENIZER, stops=["lo w"], include_stop=True)
    assert stream.push(TokenEvent(token_ids=ids)).text == "Hello w"


def test_text_that_was_held_back_comes_at_the_end() -> None:
    ids = tuple(TOKENIZER.encode("Hel", False))
    stream = TextStream(TOKENIZER, stops=["lo"])
    assert stream.push(TokenEvent(token_ids=ids)).text == "He"
    assert stream.push(TokenEvent(finish_reason=FinishReason.LENGTH)).text == "l"


CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "stop"}}\n</tool_call>'
HARMONY = (
    "<|channel|>analysis<|message|>stop here<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Do stop it."
)
# What a model says, the stop strings, and what is left: thought, answer, arguments, the match.
THOUGHTFUL: dict[str, tuple[str, list[str], tuple[str, str, str, str | None]]] = {
    "in the thought": ("I stop.</think>\n\nYes.", ["stop"], ("I stop.", "Yes.", "", None)),
    "in both": ("I stop.</think>\n\nDo stop it.", ["stop"], ("I stop.", "Do ", "", "stop")),
    "behind the thought": ("x</think>\n\nYes.\n\nNo", ["\n\n"], ("x", "Yes.", "", "\n\n")),
    "the mark": ("x</think>\n\nYes.", ["</think>", "nk>\n"], ("x", "Yes.", "", None)),
    "across the end": ("x st</think>op it", ["stop", "t</think>o"], ("x st", "op it", "", None)),
    "a second thought": (
        f"a</think>{CALL}<think>stop</think>{CALL}",
        ["sto\n"],
        ("astop", "", '{"x": "stop"}{"x": "stop"}', None),
    ),
    "in arguments": (f"a</think>b{CALL}", ["stop"], ("a", "b", '{"x": "', "stop")),
    "before a call": (f"a</think>b st{CALL}", ["stop"], ("a", "b st", '{"x": "', "stop")),
    "held back at the end": ("a</think>b st", ["stop"], ("a", "b st", "", None)),
    "what may be a mark": ("a</think>b <tool", ["<tool"], ("a", "b ", "", "<tool")),
    "no thought": ("</think>stop", ["stop"], ("", "", "", "stop")),
}


def told(pieces: tuple[Piece, ...]) -> tuple[str, str, str]:
    kinds = (Thought, ContentPiece, CallArguments)
    thought, answer, arguments = (
        "".join(piece.text for piece in pieces if isinstance(piece, kind)) for kind in kinds
    )
    return thought, answer, arguments


def thoughtful(
    text: str,
    stops: list[str],
    size: int,
    dialect: str = "hermes",
    include: bool = False,
    thinks: bool = True,
) -> TextDelta:
    context = ReplyContext(tools=(Tool("f"),), thinking=thinks and dialect == "hermes")
    stream = TextStream(
        TOKENIZER,
        stops=stops,
        include_stop=include,
        parser=DIALECTS[dialect].parser(context),
        skips_thoughts=thinks,
        skip_special_tokens=False,
    )
    ids = TOKENIZER.encode(text, False)
    cuts = list(range(0, len(ids), size))
    deltas = read(stream, events(ids, cuts, True))
    released = 0
    for delta in deltas:
        released += len(delta.text)
        assert all(entry.offset <= released for entry in delta.logprobs)
    return fold(deltas)


@pytest.mark.parametrize("case", THOUGHTFUL)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_stop_string_ends_the_answer_and_no_thought(case: str, size: int) -> None:
    text, stops, (*said, match) = THOUGHTFUL[case]
    whole = thoughtful(text, stops, size)
    assert (*told(whole.pieces), whole.stop) == (*said, END if match is None else match)
    assert whole.pieces == join_pieces(whole.pieces)
    included = thoughtful(text, stops, size, include=True)
    if match is not None:
        assert "".join(told(included.pieces)) == "".join(said) + match
        n = len(TOKENIZER.encode(text, False))
        assert whole.output_tokens == included.output_tokens <= n + 1  # the end
        assert text.startswith(whole.text)
        assert len(whole.logprobs) < n


def test_a_thought_that_is_a_message_of_its_own_is_not_searched() -> None:
    whole = thoughtful(HARMONY, ["stop", "final"], 1, "harmony")
    assert (*told(whole.pieces), whole.stop) == ("stop here", "Do ", "", "stop")


@pytest.mark.parametrize(
    ("stop", "arguments"), [("name", ""), ('"f', ""), ("</tool_call>", '{"x": "stop"}')]
)
def test_a_call_whose_head_a_stop_string_cuts_is_no_text(stop: str, arguments: str) -> None:
    whole = thoughtful(CALL, [stop], 1, thinks=False)
    assert (*told(whole.pieces), whole.stop) == ("", "", arguments, stop)
