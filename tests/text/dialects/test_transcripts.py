"""Every dialect's transcripts say the same however they are cut."""

import importlib
import json
import pkgutil
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.text.dialects.dialect import Dialect, ReplyContext
from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    ContentPiece,
    Piece,
    Thought,
)
from deployments.text.dialects.registry import DIALECTS, dialect_of
from deployments.text.reply import fold_reply
from tests.effort import tries
from tests.text.dialects import tables
from tests.text.dialects.transcripts import DEEP, PARIS, TOOLS, Table, Transcript

TABLES: list[Table] = [
    importlib.import_module(f"{tables.__name__}.{module.name}").TABLE
    for module in pkgutil.iter_modules(tables.__path__)
]
BY_DIALECT = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.dialect)
ROWS = [
    pytest.param(table, row, id=f"{table.dialect}: {row.label}")
    for table in TABLES
    for row in table.transcripts
]


def heard(
    dialect: Dialect, context: ReplyContext, cuts: Sequence[str], *, is_cut: bool = False
) -> list[Piece]:
    parser = dialect.parser(context)
    pieces = [piece for cut in cuts for piece in parser.push(cut)]
    return list(merged([*pieces, *parser.finish(is_cut=is_cut)]))


def merged(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Adjacent pieces of one kind as one; ids that are drawn are left out."""
    last: Piece | None = None
    for piece in pieces:
        assert isinstance(piece, CallStart) or piece.text, "an empty piece"
        match last, piece:
            case ContentPiece(before), ContentPiece(text):
                last = ContentPiece(before + text)
            case Thought(before), Thought(text):
                last = Thought(before + text)
            case CallArguments(index, before), CallArguments(same, text) if index == same:
                last = CallArguments(index, before + text)
            case _:
                if last is not None:
                    yield last
                last = without_id(piece)
    if last is not None:
        yield last


def without_id(piece: Piece) -> Piece:
    if isinstance(piece, CallStart) and not piece.id.startswith("functions."):
        return CallStart(piece.index, "", piece.name)
    return piece


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_a_transcript_says_what_its_table_has(table: Table, row: Transcript) -> None:
    parser = DIALECTS[table.dialect].parser(row.context)
    reply = fold_reply([*parser.push(row.text), *parser.finish()])
    assert (reply.content, reply.thought) == (row.content, row.thought)
    assert [call.name for call in reply.calls] == [name for name, _ in row.calls]
    for call, (_, expected) in zip(reply.calls, row.calls, strict=True):
        written = isinstance(expected, str)
        assert (call.arguments if written else json.loads(call.arguments)) == expected
    if row.ids is not None:
        assert tuple(call.id for call in reply.calls) == row.ids


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_a_transcript_says_the_same_however_it_is_cut(table: Table, row: Transcript) -> None:
    dialect, text = DIALECTS[table.dialect], row.text
    whole = heard(dialect, row.context, [text])
    assert heard(dialect, row.context, list(text)) == whole
    for at in range(0, len(text) + 1, tries(3, 1)):
        assert heard(dialect, row.context, [text[:at], text[at:]]) == whole, text[:at]


@BY_DIALECT
@pytest.mark.parametrize("call", [("get_weather", PARIS), ("search", DEEP)], ids=["flat", "deep"])
def test_a_truncated_call_keeps_what_was_written(
    table: Table, call: tuple[str, dict[str, object]]
) -> None:
    text = table.write([call])
    dialect, context = DIALECTS[table.dialect], ReplyContext(tools=TOOLS)
    (whole,) = fold_reply(heard(dialect, context, [text])).calls
    for at in range(len(text)):
        reply = fold_reply(heard(dialect, context, [text[:at]], is_cut=True))
        assert reply.content == "", text[:at]
        if reply.calls:
            assert whole.arguments.startswith(reply.calls[0].arguments), text[:at]


@BY_DIALECT
def test_arguments_come_while_they_are_written(table: Table) -> None:
    long = "".join(f"word {number} " for number in range(200))
    text = table.write([("search", {"query": long})])
    parser, out = DIALECTS[table.dialect].parser(ReplyContext(tools=TOOLS)), 0
    for fed, character in enumerate(text, 1):
        out += sum(map(length, parser.push(character)))
        assert fed - out < 200, text[:fed]


@BY_DIALECT
def test_plain_text_comes_at_once(table: Table) -> None:
    parser = DIALECTS[table.dialect].parser(ReplyContext(tools=TOOLS))
    words = ["Plain", " words", " and", " 12", " more", ",", " no", " marks", "."]
    for word in table.text("").split("\0"):
        parser.push(word)
    assert [fold_reply(parser.push(word)).content for word in words] == words


@BY_DIALECT
def test_a_template_of_the_family_tells_its_dialect(table: Table) -> None:
    assert dialect_of(table.template).name == table.dialect


def test_every_dialect_has_a_table() -> None:
    assert {table.dialect for table in TABLES} == set(DIALECTS)


def length(piece: Piece) -> int:
    return 0 if isinstance(piece, CallStart) else len(piece.text)


GARBAGE = [
    "{", "}", "[", "]", "(", ")", '"', "'", ":", ",", ";", "\\", "\n", " ", "\n\n", "a", "é", "1",
    "get_weather", "search", "ping", '"name"', '"arguments"', '"parameters"', "city", "=", ">", "<",
    '{"name": "ping", "arguments": {', "functions.ping:0", " to=functions.ping", "assistant",
    "analysis", "final", "ping\n", "```json\n", "```", "call:ping", "query", "null", "tru", "\t",
]  # fmt: skip


@st.composite
def replies(draw: st.DrawFn) -> tuple[Table, list[str]]:
    table = draw(st.sampled_from(TABLES))
    dialect = DIALECTS[table.dialect]
    written = table.write([("ping", {}), ("search", {"query": "x"})])
    middle = len(written) // 2
    own = [*dialect.marks, *(dialect.thought_marks or ()), *OPENINGS, written, written[:middle]]
    part = st.one_of(st.sampled_from(own), st.sampled_from(GARBAGE), st.text(max_size=4))
    return table, draw(st.lists(part, max_size=20))


OPENINGS = [
    "<function=", "<parameter=", "</parameter>", "</function>", '<invoke name="', '">',
    "<response>", "</response>", "<answer>", "</answer>",
]  # fmt: skip


@given(reply=replies(), tools=st.booleans(), thinking=st.booleans(), split=st.booleans())
def test_any_text_is_heard_and_nothing_is_lost(
    reply: tuple[Table, list[str]], tools: bool, thinking: bool, split: bool
) -> None:
    table, parts = reply
    dialect, text = DIALECTS[table.dialect], "".join(parts)
    context = ReplyContext(tools=TOOLS if tools else (), thinking=thinking, split_thoughts=split)
    pieces = heard(dialect, context, parts)
    assert pieces == heard(dialect, context, [text]) == heard(dialect, context, list(text))
    starts = [piece for piece in pieces if isinstance(piece, CallStart)]
    assert [start.index for start in starts] == list(range(len(starts)))
    assert {start.name for start in starts} <= {tool.name for tool in context.tools}
    if not starts:
        said = "".join(piece.text for piece in pieces if not isinstance(piece, CallStart))
        assert is_spread_over(said, text)


def is_spread_over(part: str, text: str) -> bool:
    """Whether `part` is the text with some of it left out."""
    rest = iter(text)
    return all(character in rest for character in part)
