"""Grammars allow calls and answers in the form in which their family was trained to write them."""

import pytest

from deployments.text.grammar.grammar import from_json_schema
from tests.text.dialects.test_replies import FRAME, MARKS, talk
from tests.text.dialects.test_transcripts import BY_DIALECT, TABLES
from tests.text.dialects.transcripts import Table

# Their grammars have compact lists, one call a message, and JSON's constants.
ONE_OF_SEVERAL_WAYS = frozenset({"command", "harmony", "pythonic"})


@BY_DIALECT
@MARKS
def test_two_calls_may_be_written_as_their_family_writes_them(table: Table, marks: str) -> None:
    if table.dialect in ONE_OF_SEVERAL_WAYS or (table.dialect, marks) == ("mistral", "text"):
        return
    talked = talk(table, marks)
    ids = talked.written(table.write([("ping", {"at": None}), ("search", {})]))
    assert [call.name for call in talked.heard(ids).calls] == ["ping", "search"]


@pytest.mark.parametrize(
    ("dialect", "before", "after"),
    [
        ("harmony", "<|channel|>final<|message|>", ""),
        ("harmony", "<|start|>assistant<|channel|>final<|message|>", ""),
        ("command", *FRAME),
    ],
)
def test_an_answer_in_a_form_may_be_where_its_family_has_answers(
    dialect: str, before: str, after: str
) -> None:
    [table] = [candidate for candidate in TABLES if candidate.dialect == dialect]
    talked = talk(table, "tokens", tools=(), answer=from_json_schema({"type": "integer"}, "p"))
    assert talked.heard(talked.written(f"{before}5{after}")).content == "5"
    assert talked.heard(talked.written("5")).content == "5"
