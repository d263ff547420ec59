"""Why a schema, a regular expression or a grammar is refused is told in words of its client."""

import re
from functools import partial

import pytest

from deployments.text.grammar.grammar import from_gbnf, from_json_schema, from_lark, from_regex
from tests.text.grammar.refusing import refusal

# Types of Rust, options and sources of llguidance, and lines of grammars that clients never wrote.
THEIRS = re.compile(
    r"f64|Unimplemented|Pointer|Resource|registry|coerce|\(in regex\)|start:|\d\(\d"
)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"minimum": "x"}, '`minimum` must be a number, got "x"'),
        ({"minLength": -1}, "`minLength` must be an integer of at least 0, got -1"),
        ({"required": 5}, "`required` must be a list, got 5"),
        ({"required": [5]}, "`required` must be a list of strings, got 5"),
        ({"patternProperties": 5}, "`patternProperties` must be an object, got 5"),
        ({"type": "text"}, '`type` must be a type of JSON Schema, got "text"'),
        ({"type": 5}, "`type` must be a string or a list of strings"),
        ({"anyOf": 5}, "`anyOf` must be a list"),
        ({"items": 5}, "each schema within it must be an object or a boolean"),
        ({"$ref": "#/none"}, '`$ref` names "#/none", which is not in the schema'),
        (
            {"$ref": "https://x.example/y"},
            '"https://x.example/y" is not in the schema, and schemas from elsewhere are not read',
        ),
        ({"if": {}, "then": {}}, "`if` and `then` are not supported"),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            "`oneOf` is not supported where two of its schemas may match: use `anyOf`",
        ),
        ({"enum": []}, "no value can match it: `enum`, `type` or `anyOf` is an empty list"),
        ({"multipleOf": 0}, "`multipleOf` must be greater than 0"),
        ({"pattern": "("}, "the regular expression `(` is not valid here: unclosed group"),
    ],
)
def test_why_a_schema_is_refused_is_told_in_the_words_of_json_schema(
    schema: object, words: str
) -> None:
    assert refusal(lambda: from_json_schema(schema, "field")).message == f"`field`: {words}"


def test_why_a_grammar_is_refused_is_told_in_words_of_its_client() -> None:
    for regex in ("(", "[z-a]", "a{5,1}", "(?=x)", "(a)\\1", "\\bx", "*", "\\p{Nope}"):
        message = refusal(partial(from_regex, regex, "field")).message
        assert message.startswith("`field`: ")
        assert "regular expression" in message
        assert not THEIRS.search(message)
    lark = refusal(lambda: from_lark('start: %json {"minimum": "x"}', "field")).message
    assert (
        lark
        == '`field`: at line 1, column 8: in this JSON Schema, `minimum` must be a number, got "x"'
    )
    for gbnf in ('root ::= "a', "root ::= [", "root ::= \\", "::=", "root ::= " + "(" * 3000):
        message = refusal(partial(from_gbnf, gbnf, "field")).message
        assert message.startswith("`field`: ")
        assert not re.search("index|recursion", message)
