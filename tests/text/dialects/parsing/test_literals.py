"""JSON comes out as it was written, and what models write instead comes out as JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.text.dialects.parsing.literals import MAX_DEPTH, literal_json, to_json
from deployments.text.dialects.parsing.values import STRING, types_of, value_json

finite = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text()
values = st.recursive(
    finite, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


@given(value=values, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_json_comes_out_as_it_was_written(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert literal_json(f"\n {written}\n") == written


@given(value=values)
def test_what_python_writes_comes_out_as_json(value: object) -> None:
    read = literal_json(repr(value))
    assert read is not None
    assert json.loads(read) == value


@given(text=st.text("\"'\\{}[]:,.-+0123456789aeEfnrtux_ \n"))
def test_of_any_text_there_comes_json_or_nothing(text: str) -> None:
    read = literal_json(text)
    if read is not None:
        json.loads(read)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("+1", "1"),
        (".5", "0.5"),
        ("1_000", "1000"),
        ("-0", "-0"),
        ("1E5", "1E5"),
        ("01", "1"),
        ("[1, 2, ]", "[1, 2]"),
        ("{'a': 1,}", '{"a": 1}'),
        ("'a\"b'", '"a\\"b"'),
        ("'it\\'s'", '"it\'s"'),
        ('"\\x41\\q\t"', '"\\u0041\\\\q\\t"'),
        ("nan", None),
        ("1e999x", None),
        ("{a: 1}", None),
        ("[1 2]", None),
        ("[,]", None),
        ('"a" "b"', None),
        ("", None),
    ],
)
def test_what_is_nearly_json_is_put_right(written: str, read: str | None) -> None:
    assert literal_json(written) == read


def test_nesting_has_a_bound() -> None:
    assert literal_json("[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)) is not None
    assert literal_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) is None


def test_lone_surrogates_stay_escaped() -> None:
    assert to_json("\ud83d é") == '"\\ud83d \\u00e9"'
    assert to_json("é") == '"é"'


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"anyOf": [{"type": "integer"}, {}]}, set()),
        ({"enum": ["a", 1]}, {"string", "integer"}),
        ({"const": 1.5}, {"number"}),
        ({"allOf": [{"$ref": "#/$defs/a"}]}, {"boolean"}),
        ({"$ref": "#/$defs/none"}, set()),
        ({"$ref": "#/$defs/loop"}, set()),
        (True, set()),
        ({}, set()),
    ],
)
def test_types_are_those_that_a_schema_names(schema: object, types: set[str]) -> None:
    root = {"$defs": {"a": {"type": "boolean"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert types_of(schema, root) == types


@given(text=st.text())
def test_a_string_is_what_was_written(text: str) -> None:
    assert json.loads(value_json(text, STRING)) == text


@given(value=values)
def test_a_value_of_no_known_type_reads_as_json(value: object) -> None:
    assert json.loads(value_json(json.dumps(value), frozenset())) == value


def test_a_number_may_be_as_long_as_it_likes() -> None:
    for number in ("0." + "3" * 500, "-1" + "0" * 500, "1e" + "1" * 300):
        assert literal_json(f"[{number}, 1]") == f"[{number}, 1]"
