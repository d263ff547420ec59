"""A grammar holds all that one can express of a schema, and the rest is left out."""

from collections.abc import Callable

import pytest

from deployments.text.grammar.grammar import from_json_schema, lenient_json_schema
from tests.text.constrained import allows
from tests.text.grammar.refusing import refusal

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
def test_near_a_schema_is_all_of_it_that_can_be_expressed(part: object, fits: str) -> None:
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


LARGE = {"type": "integer", "maximum": 2**63}


@pytest.mark.parametrize(
    ("schema", "fit", "unfit"),
    [
        (
            {"patternProperties": {"(?=a)": {}, "^x": LARGE}, "additionalProperties": False},
            ['{"ab": 1}', '{"x": 1}'],
            ["{"],
        ),
        (
            {"properties": {"a": LARGE}, "patternProperties": {"^x": {"type": "integer"}}},
            ['{"a": 1, "x": 2}'],
            ['{"a": "b"}'],
        ),
        (
            {
                "type": "array",
                "prefixItems": [{"const": 2**60}],
                "items": {"type": "string"},
                "maxItems": 3,
            },
            [f'[{2**60}, "a"]'],
            ["{}"],
        ),
        (
            {"allOf": [{"properties": {"a": LARGE}}, {"properties": {"b": {"type": "string"}}}]},
            ['{"a": 1, "b": "x"}'],
            ['{"a": "b"}', '{"b": 1}'],
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "if": {"required": ["a"]},
                "then": {"properties": {"b": {"type": "integer"}}},
                "unevaluatedProperties": False,
            },
            ['{"a": 1, "b": 2}'],
            ['{"a": "b"}'],
        ),
        (
            {
                "type": "array",
                "unevaluatedItems": False,
                "anyOf": [{"prefixItems": [{"type": "integer"}]}, {"minItems": 2}],
            },
            ["[1]"],
            ["{}"],
        ),
    ],
)
def test_what_is_left_out_shuts_nothing_out(
    schema: object, fit: list[str], unfit: list[str]
) -> None:
    grammar = lenient_json_schema(schema, "field")
    assert all(allows(grammar, text) for text in fit)
    assert not any(allows(grammar, text) for text in unfit)


def test_parts_that_are_alike_are_one_part() -> None:
    part = {"type": "string", "pattern": "^(?!x)"}
    schema = {"type": "object", "properties": {f"p{i}": part for i in range(200)}}
    grammar = lenient_json_schema(schema, "field")
    assert allows(grammar, '{"p7": "b"}')
    assert not allows(grammar, '{"p7": 1}')


@pytest.mark.parametrize("write", [from_json_schema, lenient_json_schema])
@pytest.mark.parametrize(
    ("schema", "fits", "unfit"),
    [
        ({"unevaluatedProperties": {"type": "string"}}, '{"x": 1, "z": "a"}', '{"z": 1}'),
        ({"unevaluatedProperties": True}, '{"x": 1, "z": 1}', '{"x": "a"}'),
        ({"prefixItems": [{"type": "integer"}], "unevaluatedItems": False}, "[1]", "[1, 2]"),
        ({"unevaluatedItems": {"type": "integer"}}, "[1, 2]", '["a"]'),
    ],
)
def test_unevaluated_may_be_any_schema(
    write: Callable[[object, str], str], schema: dict[str, object], fits: str, unfit: str
) -> None:
    kind = {"[": "array", "{": "object"}[fits[0]]
    part = {"type": kind, "properties": {"x": {"type": "integer"}}, **schema}
    grammar = write(part, "field")
    assert allows(grammar, fits)
    assert not allows(grammar, unfit)


@pytest.mark.timeout(60)
def test_references_that_lead_to_one_part_many_times_are_followed_once() -> None:
    """Two in each definition would be 2**40 ways to the last one."""
    definitions: dict[str, object] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)
    }
    last = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema = {"$defs": {**definitions, "d40": last}, "$ref": "#/$defs/d0"}
    grammar = from_json_schema({**schema, "unevaluatedProperties": False}, "field")
    assert allows(grammar, '{"a": 1}')
    assert not allows(grammar, '{"b": 1}')


def test_near_a_schema_that_can_be_expressed_is_that_schema() -> None:
    assert lenient_json_schema(POINT, "field") == from_json_schema(POINT, "field")


@pytest.mark.parametrize("schema", [{"type": "text"}, {"enum": []}, {"$ref": "#/none"}, False, 5])
def test_near_no_schema_there_is_nothing(schema: object) -> None:
    refusal(lambda: lenient_json_schema(schema, "field"))
