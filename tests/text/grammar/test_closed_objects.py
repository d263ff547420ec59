"""An object without `additionalProperties` has the properties that its schema names."""

import json
from typing import Any

import pytest

from deployments.text.grammar.grammar import from_json_schema, lenient_json_schema
from tests.text.constrained import allows

A = {"properties": {"a": {"type": "integer"}}}
B = {"properties": {"b": {"type": "integer"}}}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}
# A schema, a value that it allows, and one that it allows no more.
CLOSED: dict[str, tuple[dict[str, Any], object, object]] = {
    "plain": (A, {"a": 1}, {"a": 1, "z": 2}),
    "without properties": ({"type": "object", "properties": {}}, {}, {"z": 1}),
    "patterns": (
        {"type": "object", "patternProperties": {"^p": {"type": "integer"}}},
        {"p": 1},
        {"z": 1},
    ),
    "nested": (
        {"properties": {"at": POINT}, "required": ["at"]},
        {"at": {"x": 1}},
        {"at": {"x": 1, "z": 1}},
    ),
    "items": ({"type": "array", "items": POINT}, [{"x": 1}], [{"z": 1}]),
    "referenced": (
        {"$defs": {"p": POINT}, "properties": {"at": {"$ref": "#/$defs/p"}}},
        {"at": {"x": 1}},
        {"at": {"z": 1}},
    ),
    "alternatives": ({"anyOf": [A, {"type": "null"}]}, {"a": 1}, {"a": 1, "z": 1}),
    "one reference in allOf": (
        {"$defs": {"p": POINT}, "allOf": [{"$ref": "#/$defs/p"}]},
        {"x": 1},
        {"z": 1},
    ),
    "itself": (
        {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
        {"next": {"next": None}},
        {"next": {"z": 1}},
    ),
    "required without a schema": (
        {**A, "required": ["a", "other"]},
        {"a": 1, "other": [True]},
        {"a": 1, "other": 1, "z": 1},
    ),
}  # fmt: skip
OPEN: dict[str, tuple[dict[str, Any], object]] = {
    "true": ({**A, "additionalProperties": True}, {"a": 1, "z": "y"}),
    "a schema": ({**A, "additionalProperties": {"type": "null"}}, {"a": 1, "z": None}),
    "any object": ({"type": "object"}, {"z": 1}),
    "all of": ({"type": "object", "allOf": [A, B]}, {"a": 1, "b": 2}),
    "all of references": (
        {"$defs": {"A": A, "B": B}, "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
        {"a": 1, "b": 2},
    ),
    "beside a reference": ({"$defs": {"A": A}, "$ref": "#/$defs/A", **B}, {"a": 1, "b": 2}),
    "beside alternatives": ({**A, "anyOf": [B, {"type": "null"}]}, {"a": 1, "b": 2}),
}


@pytest.mark.parametrize("write", [from_json_schema, lenient_json_schema])
@pytest.mark.parametrize("name", CLOSED)
def test_an_object_has_the_properties_that_are_named(name: str, write: Any) -> None:
    schema, allowed, refused = CLOSED[name]
    grammar = write(schema, "schema")
    assert allows(grammar, json.dumps(allowed))
    assert not allows(grammar, json.dumps(refused))


@pytest.mark.parametrize("name", OPEN)
def test_an_object_is_open_where_its_schema_says_so_or_is_one_of_several(name: str) -> None:
    schema, allowed = OPEN[name]
    assert allows(lenient_json_schema(schema, "schema"), json.dumps(allowed))


def test_what_is_required_beside_alternatives_may_be_in_none_of_them() -> None:
    cat, dog = ({"properties": {name: {}}, "required": [name]} for name in ("cat", "dog"))
    schema = {"type": "object", "required": ["id"], "anyOf": [cat, dog]}
    grammar = from_json_schema(schema, "field")
    assert all(allows(grammar, text) for text in ('{"cat": 1, "id": 2}', '{"dog": 1, "id": 2}'))
