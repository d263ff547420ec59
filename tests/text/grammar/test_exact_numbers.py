"""An answer's numbers keep to their bounds exactly, however large these are."""

import json
from collections.abc import Callable

import pytest

from deployments.text.grammar.grammar import (
    from_json_schema,
    from_lark,
    lark_json,
    lenient_json_schema,
)
from tests.text.constrained import allows

INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
UINT64 = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
LARGE = 2**53 + 1


@pytest.mark.parametrize("write", [from_json_schema, lenient_json_schema])
@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"type": "integer", "minimum": LARGE, "maximum": LARGE}, [LARGE], [LARGE - 1, LARGE + 1]),
        (INT64, [0, -(2**63), 2**63 - 1], [-(2**63) - 1, 2**63, 1.5]),
        ({**INT64, "maximum": -(2**63)}, [-(2**63)], [-(2**63) + 1, 0]),
        ({"type": "integer", "maximum": 2**63 - 2}, [2**63 - 2, -(10**30)], [2**63 - 1]),
        ({"type": "integer", "exclusiveMinimum": -1e30}, [-(10**29), 5], [-(10**31)]),
        ({"type": "number", "minimum": 0, "maximum": 1e20}, [0.5, 10**20], [-1, 10**20 + 1]),
        ({"type": "number", "minimum": 0.5, "maximum": 1e20}, [0.5, 10**20], [0.25, 10**20 + 1]),
        (
            {"type": "number", "minimum": -100.0, "maximum": 11.25, "multipleOf": 1},
            [11],
            [11.25, 12],
        ),
        ({"minimum": 2**60, "exclusiveMinimum": 0.5}, [2**60, "a", None, [1]], [1, 0.75]),
        ({"const": 2**64 - 1}, [2**64 - 1], [True, 2**64]),
        ({"type": "integer", "const": 1e20}, [10**20], [2**63 - 1]),
        ({"enum": ["a", 2**60 + 1, 1.5]}, ["a", 2**60 + 1, 1.5], [2**60, 2]),
        ({"const": {"a": [-LARGE], "b": "x"}}, [{"a": [-LARGE], "b": "x"}], [{"a": [-LARGE]}]),
        ({"allOf": [{"type": "integer", "minimum": 2**60}, {"maximum": 2**60}]}, [2**60], [2**61]),
        ({"anyOf": [UINT64, {"type": "string", "maxLength": 1}]}, ["a", 2**64 - 1], ["ab", 2**64]),
        ({"type": ["integer", "null"], "minimum": 2**60}, [None, 2**60], [1, "a"]),
        (
            {
                "type": "object",
                "properties": {"id": UINT64, "at": {"$ref": "#/$defs/at"}, "next": {"$ref": "#"}},
                "required": ["id"],
                "$defs": {"at": {"type": "array", "items": INT64, "minItems": 1, "maxItems": 2}},
            },
            [{"id": 2**64 - 1}, {"id": 1, "at": [2**63 - 1, 2], "next": {"id": 0}}],
            [{"id": 2**64}, {"at": [1]}, {"id": 1, "at": [2**63]}, {"id": 1, "z": 1}],
        ),
        (
            {"type": "object", "additionalProperties": INT64},
            [{}, {"a": 2**63 - 1, "b": 0}],
            [{"a": 2**63}, {"a": "b"}],
        ),
        ({"type": "array", "prefixItems": [INT64], "items": False}, [[2**62], []], [[2**63]]),
        (
            {"type": "array", "prefixItems": [{"const": LARGE}, {"type": "string"}, INT64]},
            [[], [LARGE], [LARGE, "a", 1], [LARGE, "a", 1, None, {}]],
            [["a"], [LARGE, 1], [1], [LARGE - 1]],
        ),
        ({"type": "array", "items": INT64, "maxItems": 1}, [[], [2**62]], [[1, 2], [2**63]]),
        ({"items": INT64, "minItems": 1, "maxItems": 1}, [[1], "a"], [[], [1, 2], [2**63]]),
        ({"properties": {"a": INT64}, "maxLength": 1}, [{"a": 1}, [2], "a"], [{"a": 2**63}, "ab"]),
        (
            {
                "type": "array",
                "items": {"anyOf": [{"$ref": "#/$defs/a"}, INT64]},
                "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}, "type": "object"}},
            },
            [[{"b": {"b": {}}}, 2**62]],
            [[{"b": 1}], [2**63]],
        ),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, [0.001, 0.5], [0, 0.75, -1]),
        ({"exclusiveMinimum": -1.5, "exclusiveMaximum": -1}, [-1.25, "a"], [-1, -1.5, -2]),
        ({"type": "number", "exclusiveMinimum": 0.07, "maximum": 12.5}, [0.5, 12.5], [0.07, 12.75]),
        ({"type": "number", "minimum": 5e-324, "maximum": 2}, [1.5, 2], [0, -1]),
        ({"const": 949.1189023853077}, [949.1189023853077], [949.1189023853076]),
        ({"type": "integer", "minimum": 9, "exclusiveMinimum": 2**53}, [LARGE], [2**53, 9]),
        ({"enum": [[123456789.12345679], 1]}, [[123456789.12345679], 1], [[123456789.1234568]]),
    ],
)
def test_numbers_of_any_size_are_exact(
    write: Callable[[object, str], str], schema: object, inside: list[object], outside: list[object]
) -> None:
    grammar = write(schema, "field")
    within = from_lark(f'start: "<" a ">"\na: {lark_json(schema, "field")}', "field")
    for value in inside:
        assert allows(grammar, json.dumps(value)), value
        assert allows(within, f"<{json.dumps(value, indent=1)}>"), value
    for value in outside:
        assert not allows(grammar, json.dumps(value)), value


def test_a_bound_is_written_once_however_many_numbers_have_it() -> None:
    names = [f"p{i}" for i in range(500)]
    schema = {"type": "object", "properties": dict.fromkeys(names, INT64), "required": names}
    grammar = from_json_schema(schema, "field")
    assert allows(grammar, json.dumps(dict.fromkeys(names, 2**62)))
    assert not allows(grammar, json.dumps(dict.fromkeys(names, 2**63)))


def test_of_definitions_each_schema_has_those_that_it_needs() -> None:
    large = {"enum": [f"{i} of many words" for i in range(1000)]}
    schema = {
        "type": "object",
        "$defs": {"large": large},
        "properties": {"id": INT64, **{f"p{i}": {"$ref": "#/$defs/large"} for i in range(100)}},
    }
    assert allows(from_json_schema(schema, "field"), '{"id": 1, "p7": "3 of many words"}')


@pytest.mark.parametrize("name", ["maxItems", "maxLength", "maxProperties"])
@pytest.mark.parametrize("most", [2**32, 2**63 - 1, 1e20])
def test_a_length_that_no_answer_has_is_no_limit(name: str, most: float) -> None:
    assert from_json_schema({"type": "array", name: most}, "field") == from_json_schema(
        {"type": "array"}, "field"
    )


def test_an_integral_float_is_an_integer() -> None:
    grammar = from_json_schema({"type": "string", "minLength": 1.0, "maxLength": 2.0}, "field")
    assert [allows(grammar, text) for text in ('""', '"a"', '"abc"')] == [False, True, False]
