"""The target of a schema's reference is found, in whichever way it is written."""

from collections.abc import Callable
from urllib.parse import quote

import pytest

from deployments.text.grammar.grammar import from_json_schema
from tests.text.constrained import allows

NAMES = ["My Pet", "Größe", "Box<T|null>[]", "100%", "a/b~c", "plain", "%7B"]


@pytest.mark.parametrize("group", ["$defs", "definitions", "components"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("encode", [str, quote], ids=["plain", "encoded"])
def test_a_reference_may_be_written_in_each_way(
    group: str, name: str, encode: Callable[[str], str]
) -> None:
    pointer = "#/" + group + "/" + encode(name.replace("~", "~0").replace("/", "~1"))
    part = {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"$ref": pointer}},
        "required": ["a"],
    }
    grammar = from_json_schema({"$ref": pointer, group: {name: part}}, "field")
    assert allows(grammar, '{"a": 1, "b": {"a": 1}}')
    assert not allows(grammar, '{"a": 1, "b": {"a": 2}}')


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#one", "$defs": {"a": {"$anchor": "one", "const": 1}}},
        {"$ref": "#one", "definitions": {"a": {"$id": "#one", "const": 1}}},
        {"$ref": "b.json", "$id": "http://x.org", "$defs": {"c": {"$id": "b.json", "const": 1}}},
        {"$ref": "urn:x#c", "$id": "urn:x", "$defs": {"b": {"$anchor": "c", "const": 1}}},
        {"$ref": "b#/$defs/c d", "$defs": {"a": {"$id": "b", "$defs": {"c d": {"const": 1}}}}},
        {"$ref": "#one", "$defs": {"a": {"$dynamicAnchor": "one", "const": 1}}},
        {"$ref": "#one", "definitions": {"a": {"id": "#one", "const": 1}}},
        {"$ref": "#/definitions/P<A,a/b>", "definitions": {"P<A,a/b>": {"const": 1}}},
        {"$ref": "#/$defs/P%3Ca%2Fb%3E", "$defs": {"P<a/b>": {"const": 1}}},
        {"$dynamicAnchor": "alone", "const": 1},
        {"anyOf": [{"$ref": "#/x-parts/0/a b"}], "x-parts": [{"a b": {"const": 1}}]},
    ],
)  # fmt: skip
def test_what_a_reference_names_is_found(schema: object) -> None:
    grammar = from_json_schema(schema, "field")
    assert allows(grammar, "1")
    assert not allows(grammar, "2")
