"""A grammar holds all that one can express of a schema, and the rest is left out."""

from collections.abc import Callable

import pytest

from deployments.text.grammar.grammar import from_json_schema, lenient_json_schema
from tests.text.grammar.refusing import refusal
from tests.text.held import allows

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "array", "items": {"const": "z"}}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
WORDS = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        ({**WORDS, "uniqueItems": True}, '["b", "b"]'),
        ({"type": "string", "pattern": "^(?!b)", "maxLength": 1}, '"b"'),
        ({"type": "string", "not": {"const": "b"}}, '"b"'),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1"),
        ({"type": "object", "minProperties": 2}, '{"b": 1, "c": 2}'),
        ({"type": "integer", "maximum": 2**60, "multipleOf": 7}, "7"),
        ({"type": "float", "minimum": 1}, "1.5"),
        ({"type": "List", "items": {"type": "str"}, "minItems": -1}, '["b"]'),
        ({"type": "string", "enum": [], "required": True}, '"b"'),
        ({"type": ["int", "String"], "format": None, "maxLength": "1"}, '"b"'),
        ({"$ref": "#/$defs/b", "type": "integer"}, "1"),
        (
            {
                "type": "object",
                "anyOf": [{"properties": {"b": {"type": "integer"}}}, {"properties": {"c": {}}}],
                "unevaluatedProperties": False,
            },
            '{"b": 1}',
        ),
    ],
)
def test_near_a_schema_is_all_of_it_that_can_be_held(part: object, fits: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": part},
        "required": ["a"],
        "additionalProperties": False,
    }
    refusal(lambda: from_json_schema(schema, "field"))
    grammar = lenient_json_schema(schema, "field")
    assert allows(grammar, f'{{"a": {fits}}}')
    for text in ("{}", '{"a": null}', f'{{"a": {fits}, "b": 1}}'):
        assert not allows(grammar, text)


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        ({"type": "any"}, '"x"'),
        ({"type": ""}, "[1]"),
        ({"type": "date"}, '"2026-01-01"'),
        ({"$ref": "#anchor"}, "{}"),
        ("string", '"x"'),
        (None, "null"),
        ({"enum": []}, "1"),
    ],
)
def test_a_part_that_says_nothing_may_be_anything_and_the_rest_is_kept(
    part: object, fits: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {
        "type": "object",
        "properties": {"mode": {"enum": ["x", "y"]}, "value": part, "next": {"$ref": "#"}},
        "required": ["mode", "value"],
    }
    grammar = lenient_json_schema(schema, "field")
    assert allows(grammar, f'{{"mode": "x", "value": {fits}}}')
    assert allows(grammar, f'{{"mode": "x", "value": 1, "next": {{"mode": "y", "value": {fits}}}}}')
    for text in ('{"mode to x": true}', '{"mode": "z", "value": 1}', '{"mode": "x"}'):
        assert not allows(grammar, text)
    assert part == {"type": "any"} or "value" in caplog.text or "#anchor" in caplog.text


def test_of_a_definition_only_the_smallest_part_is_left_out() -> None:
    node = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "(?=a)"},
            "next": {"$ref": "#/$defs/n"},
        },
        "required": ["code"],
    }
    grammar = lenient_json_schema({"$ref": "#/$defs/n", "$defs": {"n": node}}, "field")
    assert allows(grammar, '{"code": "b", "next": {"code": "c"}}')
    for text in ('{"code": "b", "next": {}}', '{"code": 1}', '{"code": "b", "next": 1}'):
        assert not allows(grammar, text)


@pytest.mark.parametrize("write", [from_json_schema, lenient_json_schema])
def test_all_that_is_unevaluated_is_closed(write: Callable[[object, str], str]) -> None:
    schema = {
        "$defs": {"a": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "allOf": [{"$ref": "#/$defs/a"}],
        "properties": {"y": {"type": "integer"}},
        "unevaluatedProperties": False,
    }
    grammar = write(schema, "field")
    assert allows(grammar, '{"x": 1, "y": 2}')
    assert not allows(grammar, '{"x": "1", "y": 2}')
    assert not allows(grammar, '{"y": 2, "z": 1}')


def test_near_a_schema_that_can_be_held_is_that_schema() -> None:
    assert lenient_json_schema(POINT, "field") == from_json_schema(POINT, "field")


@pytest.mark.parametrize("schema", [{"type": "text"}, {"enum": []}, {"$ref": "#/none"}, False, 5])
def test_near_no_schema_there_is_nothing(schema: object) -> None:
    refusal(lambda: lenient_json_schema(schema, "field"))
