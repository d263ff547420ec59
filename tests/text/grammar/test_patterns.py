"""The patterns of a schema are read as JSON Schema has them: by ECMAScript's rules."""

import json
import re
from collections.abc import Callable

import pytest

from deployments.text.grammar.grammar import from_json_schema, lenient_json_schema
from tests.text.constrained import allows


@pytest.mark.filterwarnings("ignore:Possible")  # Python warns of sets, which it does not have
@pytest.mark.parametrize("write", [from_json_schema, lenient_json_schema])
@pytest.mark.parametrize(
    ("pattern", "text", "other"),
    [
        ("^[[:alpha:]]$", "a]", "b"),
        ("^[a[b]]$", "[]", "b"),
        ("^[^[x]$", "a", "["),
        ("^[a&&b]$", "&", "c"),
        ("^[a~~b]$", "~", "c"),
        ("^[+--]$", ",", "+-"),
        ("^[--/]$", ".", "--"),
        ("^[^--/]$", "a", "."),
        (r"^\[[\]x]$", "[]", "x"),
    ],
)
def test_a_class_has_characters_alone(
    pattern: str, text: str, other: str, write: Callable[..., str]
) -> None:
    grammar = write({"type": "string", "pattern": pattern}, "field")
    for said in (text, other):
        assert allows(grammar, json.dumps(said)) == bool(re.search(pattern, said)), said
    assert re.search(pattern, text)
    assert not re.search(pattern, other)


def test_a_dot_is_no_end_of_a_line() -> None:
    grammar = from_json_schema({"type": "string", "pattern": "^.$"}, "field")
    for said in ("a", "\u00e9", '"', "\t"):
        assert allows(grammar, json.dumps(said, ensure_ascii=False)), said
    for said in ("\n", "\r", "\u2028", "\u2029"):
        for text in (json.dumps(said), json.dumps(said, ensure_ascii=False)):
            assert not allows(grammar, text), text


def test_so_is_the_pattern_of_a_name() -> None:
    schema = {
        "type": "object",
        "patternProperties": {"^[[:a:]]$": {"type": "integer"}},
        "additionalProperties": False,
    }
    grammar = from_json_schema(schema, "field")
    assert allows(grammar, '{"a]": 1}')
    assert not allows(grammar, '{"a": 1}')
