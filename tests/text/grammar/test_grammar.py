"""A grammar allows what its source says and nothing else; what can't be honoured says why."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.errors import ErrorKind
from deployments.text.grammar.grammar import (
    MAX_GRAMMAR_BYTES,
    any_json_object,
    from_choice,
    from_gbnf,
    from_json_schema,
    from_lark,
    from_regex,
    lark_json,
    lenient_json_schema,
)
from deployments.text.grammar.schemas.json_schema import FORMATS
from tests.text.constrained import allows
from tests.text.grammar.refusing import refusal

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "array", "items": {"const": "z"}}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
VALUE = {"x": 3, "y": ["z", "z"]}


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
@pytest.mark.parametrize("separators", [None, (",", ":"), (", ", ": ")])
def test_json_may_be_laid_out_as_models_do(
    indent: int | str | None, separators: tuple[str, str] | None
) -> None:
    grammar = from_json_schema(POINT, "field")
    assert allows(grammar, json.dumps(VALUE, indent=indent, separators=separators))


@pytest.mark.parametrize("space", ["  ", "\n\n", "\n" + " " * 33, "\r\n", "\t"])
def test_whitespace_within_json_is_bounded(space: str) -> None:
    grammar = from_json_schema(POINT, "field")
    assert not allows(grammar, '{"x":' + space + '3,"y":[]}')


@pytest.mark.parametrize(
    "text", ['{"x":3}', '{"x":3.5,"y":[]}', '{"x":3,"y":["w"]}', '{"x":3,"y":[],"w":1}', "3", ""]
)
def test_json_beside_its_schema_is_not_allowed(text: str) -> None:
    assert not allows(from_json_schema(POINT, "field"), text)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"properties": {"a": {"not": {}}}}, "not"),
        ({"if": {}, "then": {}}, "if"),
        ({"$defs": {"a": {"contains": {}}}, "$ref": "#/$defs/a"}, "contains"),
        ({"propertyNames": {"pattern": "a"}}, "propertyNames"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"anyOf": [{"properties": {}}], "unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"type": "string", "pattern": "a(?=b)"}, "look-ahead"),
        ({"type": "object", "minProperties": 2}, "minProperties"),
        ({"items": {"required": ["a"], "minProperties": 3}}, "minProperties"),
        ({"type": "integer", "minimum": 2**60, "multipleOf": 7}, "2**53"),
        ({"type": "integer", "minimum": 2**60, "anyOf": [{"maximum": 2**61}]}, "2**53"),
        ({"type": "integer", "minimum": 2**60, "not": {"const": 2**61}}, "2**53"),
        ({"type": "integer", "minimum": 10**500}, "2**53"),
        ({"oneOf": [{"type": "integer", "minimum": 2**60}, {"type": "number"}]}, "oneOf"),
        ({"oneOf": [{"type": "integer", "minimum": 2**60}, {}]}, "oneOf"),
        ({"type": "array", "items": {"minimum": 2**60}, "minItems": 2, "maxItems": 1}, "no value"),
        ({"type": "number", "exclusiveMinimum": 0.5, "maximum": 0.5}, "no value"),
        ({"$ref": "https://example.com/schema"}, "example.com"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"$ref": "#none"}, "none"),
        ({"$ref": "#"}, "leads back"),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}},
            "leads back",
        ),
        ({"type": "text"}, "text"),
        ({"enum": []}, "no value"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"x-guidance": {"lenient": True}, "uniqueItems": True}, "uniqueItems"),
        ({"allOf": [{"pattern": f"a{n}"} for n in range(8)]}, "8 patterns at once"),
        (
            {
                "$defs": {"a": {"pattern": "a", "allOf": [{"pattern": "b"}] * 3}},
                "properties": {"x": {"$ref": "#/$defs/a", "allOf": [{"$ref": "#/$defs/a"}]}},
            },
            "8 patterns at once",
        ),
        ({"patternProperties": {f"^x{n}": {} for n in range(65)}}, "65 names"),
        (False, "false"),
        ("{}", "object"),
        (None, "object"),
        ([], "object"),
        ({"const": float("nan")}, "float"),
        ({"const": "\ud800"}, ""),
        ({"const": object()}, "serializable"),
    ],
)
def test_a_schema_that_cannot_be_honoured_is_refused_by_name(schema: object, named: str) -> None:
    error = refusal(lambda: from_json_schema(schema, "field"))
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert named in error.message
    assert error.message.startswith("`field`: ")
    assert refusal(lambda: lark_json(schema, "field")) == error


NUMBERS = {"type": "object", "additionalProperties": {"type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({"type": "array", "uniqueItems": False}, {"type": "array"}),
        ({**NUMBERS, "propertyNames": {"type": "string"}}, NUMBERS),
        ({**NUMBERS, "propertyNames": {}}, NUMBERS),
        ({**NUMBERS, "propertyNames": True}, NUMBERS),
        ({"type": "string", "format": "password"}, {"type": "string"}),
        (
            {"properties": {"format": {"format": "path"}}, "items": [{"uniqueItems": False}]},
            {"properties": {"format": {}}, "items": [{}]},
        ),
        (
            {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"format": "binary"}}},
            {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {}}},
        ),
    ],
)
def test_keywords_that_ask_for_nothing_are_left_out(schema: object, plain: object) -> None:
    assert from_json_schema(schema, "field") == from_json_schema(plain, "field")
    assert lark_json(schema, "field") == lark_json(plain, "field")


def test_what_is_no_keyword_stays() -> None:
    schema = {"enum": [{"format": "x", "uniqueItems": False}]}
    assert allows(from_json_schema(schema, "field"), '{"format": "x", "uniqueItems": false}')


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_format_that_is_known_is_kept_to(name: str) -> None:
    assert not allows(from_json_schema({"type": "string", "format": name}, "field"), '"?"')


def test_names_of_properties_are_no_keywords() -> None:
    schema = {"properties": {"minProperties": {"type": "integer"}, "not": {"const": 1}}}
    assert allows(from_json_schema(schema, "field"), '{"minProperties": 7, "not": 1}')


def test_what_a_schema_quotes_is_no_schema() -> None:
    quoted = {"minProperties": 5}
    schema = {"properties": {"default": {"default": quoted, "enum": [quoted, 1]}}}
    assert allows(from_json_schema(schema, "field"), '{"default": {"minProperties": 5}}')


def test_enough_required_names_make_a_least_number_of_properties_safe() -> None:
    schema = {"type": "object", "required": ["a", "b"], "minProperties": 3}
    assert allows(from_json_schema(schema, "field"), '{"a":1,"b":2,"c":3}')
    assert not allows(from_json_schema(schema, "field"), '{"a":1,"b":2}')


def test_any_object_and_nothing_but_an_object() -> None:
    grammar = any_json_object("field")
    assert allows(grammar, '{"a": [1, {"b": null}]}')
    assert not allows(grammar, "[]")
    assert not allows(grammar, '"a"')


def test_true_is_any_json() -> None:
    assert allows(from_json_schema(True, "field"), '[1, "a", {"b": 1.5e3}]')


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5), st.text(max_size=8))
def test_a_choice_is_one_of_them(choices: list[str], other: str) -> None:
    grammar = from_choice(choices, "field")
    assert all(allows(grammar, choice) for choice in choices)
    assert allows(grammar, other) == (other in choices)


@pytest.mark.parametrize("choices", [[], ["a", "\ud800"], ["x" * MAX_GRAMMAR_BYTES]])
def test_a_choice_that_cannot_be_is_refused(choices: Sequence[str]) -> None:
    refusal(lambda: from_choice(choices, "field"))


@pytest.mark.parametrize(
    ("regex", "inside", "outside"),
    [
        ("[a-c]+\\d", "abc7", "abcd7"),
        ("^a|b$", "b", "ab"),
        ("/{2}x", "//x", "/x"),
        ("", "", "a"),
        ("a\nb#", "a\nb#", "ab"),
        ("é{2}", "éé", "é"),
        ("(?i)yes", "YeS", "no"),
    ],
)
def test_a_regular_expression_matches_all_of_the_output(
    regex: str, inside: str, outside: str
) -> None:
    grammar = from_regex(regex, "field")
    assert allows(grammar, inside)
    assert not allows(grammar, outside)
    assert not allows(grammar, inside + "\n")


@pytest.mark.parametrize(
    "regex", ["(a", "(?<=a)b", "(a)\\1", "\ud800", "x" * 2 * MAX_GRAMMAR_BYTES]
)
def test_a_regular_expression_that_cannot_be_honoured_is_refused(regex: str) -> None:
    refusal(lambda: from_regex(regex, "field"))


def test_lark_is_read_with_its_special_tokens_left_to_the_engine() -> None:
    assert allows(from_lark('start: "(" start ")" | "x"', "field"), "((x))")
    assert from_lark('start: <|call|> "x"', "field")


@pytest.mark.parametrize(
    "lark", ["", "start: nothing", 'start: "a', "hello", '{"grammars": []}', "start: /(/", "\ud800"]
)
def test_lark_that_is_none_is_refused(lark: str) -> None:
    refusal(lambda: from_lark(lark, "field"))


def test_a_schema_stands_within_lark() -> None:
    schema = {"type": "object", "properties": {"//": {"const": "#}\n"}}, "required": ["//"]}
    grammar = from_lark(f'start: "<" a ">"\na: {lark_json(schema, "field")}', "field")
    assert allows(grammar, '<{"//": "#}\\n"}>')
    assert not allows(grammar, '<{"//": 1}>')


GBNF = r"""# a list
root ::= item ("," item)* | "none" # or nothing
item ::= [^",\\\x7F\x00-\x1F]{1,3} | "\u0041\u00e9\u000a" | "\U0001F600" | quoted-one
quoted-one ::= "\"" [\u0061-\u0063]+ "\""
"""


@pytest.mark.parametrize("text", ["ab,cd", "none", "Aé\n", "😀,x", '"abc",a', "]"])
def test_gbnf_is_read_as_llama_cpp_does(text: str) -> None:
    assert allows(from_gbnf(GBNF, "field"), text)


@pytest.mark.parametrize("text", ["", "abcd", '"d"', '"a', "a,"])
def test_gbnf_allows_nothing_else(text: str) -> None:
    assert not allows(from_gbnf(GBNF, "field"), text)


@pytest.mark.parametrize(
    "gbnf",
    ["", "root", "root ::= other", 'a ::= "a"', 'root ::= "', 'root ::= "\\', "root ::= [", "{",
     'root ::= "a"{9999999999999}', "root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "\ud800"],
)  # fmt: skip
def test_gbnf_that_is_none_is_refused(gbnf: str) -> None:
    refusal(lambda: from_gbnf(gbnf, "field"))


def nested(depth: int) -> object:
    schema: object = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def linked(n: int, nesting: int) -> str:
    """A chain of definitions, each of which nests the next one."""
    definitions: dict[str, object] = {f"d{n}": {}}
    for i in range(n):
        link: object = {"$ref": f"#/$defs/d{i + 1}"}
        for _ in range(nesting):
            link = {"items": link}
        definitions[f"d{i}"] = link
    return json.dumps({"$defs": definitions, "$ref": "#/$defs/d0"})


@pytest.mark.parametrize("depth", [130, 2000, 100_000])
def test_a_schema_nested_too_deeply_is_refused(depth: int) -> None:
    refusal(lambda: from_json_schema(nested(depth), "field"))
    if depth > 130:
        refusal(lambda: lenient_json_schema(nested(depth), "field"))


def test_a_grammar_that_is_too_long_is_refused() -> None:
    long = {"enum": ["x" * 1000 + str(i) for i in range(300)]}
    for write in (from_json_schema, lenient_json_schema):
        assert str(MAX_GRAMMAR_BYTES) in refusal(partial(write, long, "field")).message
    spread = "".join(chr(n) for n in range(0x10000, 0x20000, 2))  # 320 kB as llguidance reads it
    for gbnf in ('root ::= "a"' + " " * MAX_GRAMMAR_BYTES, f"root ::= [{spread}]"):
        assert str(MAX_GRAMMAR_BYTES) in refusal(partial(from_gbnf, gbnf, "field")).message


@pytest.mark.parametrize(("n", "nesting"), [(5000, 0), (3500, 1), (250, 90)])
def test_no_schema_overflows_the_stack(n: int, nesting: int) -> None:
    """The schema is read in a process of its own: an overflow would end the process."""
    code = (
        "import json, sys; from deployments.text.grammar.grammar import from_json_schema, Refused\n"
        "try: from_json_schema(json.load(sys.stdin), 'field')\n"
        "except Refused: pass"
    )
    schema = linked(n, nesting)
    assert len(schema) < MAX_GRAMMAR_BYTES
    ran = subprocess.run([sys.executable, "-c", code], input=schema, text=True, check=False)
    assert ran.returncode == 0


def test_without_llguidance_a_grammar_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    for write in (
        lambda: from_json_schema({"type": "object"}, "field"),
        lambda: lenient_json_schema({"pattern": "(?=a)"}, "field"),
        lambda: from_regex("a", "field"),
        lambda: from_gbnf('root ::= "a"', "field"),
    ):
        assert refusal(write).kind is ErrorKind.NOT_SUPPORTED


def test_it_imports_neither_torch_nor_llguidance_before_it_needs_them() -> None:
    code = (
        "import sys, deployments.text.grammar.grammar\n"
        "sys.exit('torch' in sys.modules or 'llguidance' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
