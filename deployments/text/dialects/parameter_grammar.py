"""Decides which tools' parameters can be written one by one, and writes Lark of values as text.

A parsed value must be one that the schema allows. Schemas for which this is not certain are written
as JSON instead.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deployments.text.dialects.call_grammar import literal, object_schema
from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.parsing.values import STRING, types_of
from deployments.text.grammar.grammar import lark_json
from deployments.text.tool import Tool

NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
ANNOTATIONS = {"title", "description", "default", "examples", "deprecated", "$comment", "$schema"}
PARAMETERS_KEYWORDS = ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
FREE_TEXT_KEYWORDS = ANNOTATIONS | {"type", "anyOf", "maxLength"}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    schema: Mapping[str, object]
    required: bool


def parameters_of(tool: Tool) -> tuple[Parameter, ...] | None:
    """None if the schema has more than a list of parameters with a schema each."""
    schema = object_schema(tool)
    if tool.input_lark or schema.get("additionalProperties", False) is not False:
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return None
    named = all(NAME.fullmatch(name) for name in [tool.name, *properties])
    whole = all(isinstance(part, Mapping) for part in properties.values())
    if not (
        named and whole and set(schema) <= PARAMETERS_KEYWORDS and set(required) <= set(properties)
    ):
        return None
    if '"$ref"' in json.dumps(schema, default=str):
        return None
    return tuple(Parameter(name, part, name in required) for name, part in properties.items())


def can_be_text(parameter: Parameter, end: str) -> bool:
    """Whether text before the mark `end` can be any value that the schema allows, and no other."""
    types = types_of(parameter.schema, {})
    if "string" not in types:
        return True
    return bool(_choices(parameter.schema, end)) or _is_free(parameter.schema)


def text_value(
    rule: str, parameter: Parameter, end: str, wrapped: bool, mark: WriteMark
) -> tuple[str, list[str]]:
    """Lark of a value and the mark after it, and the rules that it uses."""
    newline = r' "\n"' if wrapped else ""
    if "string" not in types_of(parameter.schema, {}):
        line = f"{rule}_value: {lark_json(parameter.schema, 'tools')}"
        return f"{rule}_value{newline} {mark(end)}", [line]
    choices = _choices(parameter.schema, end)
    if choices:
        return f"({' | '.join(map(literal, choices))}){newline} {mark(end)}", []
    return _free_text(rule, parameter.schema, end, wrapped, mark(end))


def _free_text(
    rule: str, schema: Mapping[str, object], end: str, wrapped: bool, written: str
) -> tuple[str, list[str]]:
    longest = schema.get("maxLength", "")
    count = f"{{0,{longest}}}" if longest != "" else "*"
    text = f"{rule.upper()}_TEXT"
    lines = [f"{text}: /(?s:.{count})/ & ~(/(?s:.*)/ {literal(end)} /(?s:.*)/)"]
    if written.startswith("<"):  # a special token, which is no part of a text
        return f"{text} {written}", lines
    closing = re.escape(end).replace("/", r"\/")
    closing = rf"/\n?{closing}/" if wrapped else f"/{closing}/"
    return f"{rule}_text", [f"{rule}_text[suffix={closing}]: {text}", *lines]


def _choices(schema: Mapping[str, object], end: str) -> Sequence[str]:
    """The strings of a schema that lists its values."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list) or set(schema) - ANNOTATIONS - {"type", "const", "enum"}:
        return ()
    if types_of(schema, {}) != STRING:
        return ()
    strings = [value for value in listed if isinstance(value, str) and end not in value]
    return strings if len(strings) == len(listed) else ()


def _is_free(schema: Mapping[str, object]) -> bool:
    """Whether a schema constrains only the types of its values and the length of a string."""
    parts = schema.get("anyOf", [])
    if set(schema) - FREE_TEXT_KEYWORDS or not isinstance(parts, list):
        return False
    if "maxLength" in schema and types_of(schema, {}) != STRING:
        return False
    return all(isinstance(part, Mapping) and set(part) <= ANNOTATIONS | {"type"} for part in parts)
