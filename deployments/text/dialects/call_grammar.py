"""Writes Lark, as llguidance reads it, for calls whose arguments fit the tools' schemas.

The rule `listed` is the calls after their opening mark, `call` is one of them, and `call_0` onwards
are the calls of each tool. Rules of the parts of a call have its name and a suffix.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from deployments.contract.errors import ErrorKind, Refused
from deployments.text.dialects.dialect import Opening
from deployments.text.grammar.grammar import expressible_schema, lark_json, quoted_text_lark
from deployments.text.tool import INPUT, Tool

MAX_CALLS = 32  # in one constrained reply
CallBody = Callable[[Tool, str], str]  # takes a tool and the name of its rule
PLAIN_NAME = re.compile(r"[\w.-]+", re.ASCII)
ANY = "/(?s:.*)/"
SPACES = r"/[\s\x1c-\x1f]*/"  # whitespace as in Python
# Any object. An empty schema would be read as one without parameters.
ANY_OBJECT: Mapping[str, object] = {"type": "object", "minProperties": 0}


def literal(text: str) -> str:
    return json.dumps(text)


def without(*texts: str) -> str:
    """Text that contains none of the texts, as a part of a terminal."""
    return f"{ANY} & ~({ANY} {_either(texts)} {ANY})"


def through(rule: str, terminal: str, end: str) -> str:
    """A rule of a terminal and the mark after it. `end` is Lark of the mark."""
    if end.startswith("<"):  # a special token, which is no part of a text
        return f"{rule}: {terminal} {end}"
    return f"{rule}[suffix={end}]: {terminal}"


def _either(texts: Iterable[str]) -> str:
    return f"({' | '.join(map(literal, texts))})"


def constrainable(tool: Tool) -> Tool:
    """The tool, if a grammar can express its schema. Else, if it is not strict, the tool with the
    part that a grammar can express, or any object. Raises Refused for a strict tool.
    """
    if tool.strict or tool.input_lark:
        arguments_rule(tool, "")
        return tool
    with suppress(Refused):
        part = expressible_schema({**tool.parameters, "type": "object"}, tool.param)
        if "properties" in part or "properties" not in tool.parameters:
            return replace(tool, parameters=part)
    return replace(tool, parameters=ANY_OBJECT)


def call_rules(listed: str, tools: Sequence[Tool], body: CallBody, prefix: str = "") -> str:
    """`listed` is Lark of all calls, in terms of `call`. `body` writes the right side of the rule
    for calls of one tool; lines with further rules may follow it. All names begin with `prefix`.
    """
    rules = [f"{prefix}call_{index}" for index in range(len(tools))]
    lines = [f"{prefix}listed: {listed}", f"{prefix}call: {' | '.join(rules)}"]
    lines += [f"{rule}: {body(tool, rule)}" for rule, tool in zip(rules, tools, strict=True)]
    return "\n".join(lines) + "\n"


def call_sequence(one: str, between: str, parallel: bool) -> str:
    """One call, or with `parallel` up to MAX_CALLS. `between` is Lark of the text between two."""
    return f"{one} ({between} {one}){{0,{MAX_CALLS - 1}}}" if parallel else one


def ordered_items(rule: str, items: Sequence[tuple[str, bool]], between: str) -> list[str]:
    """`RULE_list`: the items in their order. Those that are not required may be left out."""
    lines = [f'{rule}_first{len(items)}: ""', f'{rule}_next{len(items)}: ""']
    for index, (item, required) in enumerate(items):
        rest = f"{rule}_next{index + 1}"
        other = "" if required else f" | {rule}_first{index + 1}"
        follows = f"{between} {item}" if required else f"({between} {item})?"
        lines += [f"{rule}_first{index}: {item} {rest}{other}"]
        lines += [f"{rule}_next{index}: {follows} {rest}"]
    return [f"{rule}_list: {rule}_first0", *lines]


def json_call_body(arguments: str = "arguments", name: str = "name") -> CallBody:
    """An object of a name and the arguments, under the keys of the dialect."""

    def body(tool: Tool, rule: str) -> str:
        start = f'{{"{name}": {json.dumps(tool.name)}, "{arguments}": '
        return f'{literal(start)} {rule}_arguments "}}"\n{arguments_rule(tool, rule)}'

    return body


def bare_json_openings(
    tools: Sequence[Tool], parallel: bool, prefix: str = ""
) -> tuple[str, tuple[Opening, ...]]:
    """Openings of `read_separated_calls` without a mark: an object that begins with the name of a
    tool, or a list of such. The calls are the rules of `call_rules`.
    """
    call = f"{prefix}call"
    lines = [
        f"{prefix}objects: {call_sequence(call, json.dumps('; '), parallel)}",
        f'{prefix}array: "[" {call_sequence(call, json.dumps(", "), parallel)} "]"',
    ]
    names = [tool.name for tool in tools if PLAIN_NAME.fullmatch(tool.name)]
    openings = [
        Opening(f'{bracket}{{{kind}"name":"{name}"', prefix + rule, lead, compact=True)
        for name in names
        for bracket, rule in (("", "objects"), ("[", "array"))
        for kind in ("", '"type":"function",')
        for lead in [f'{bracket}{{"name": "{name}"']
    ]
    return "\n".join(lines) + "\n", tuple(openings)


def headed_call_body(head: Callable[[str], str]) -> CallBody:
    """A head, which is made from the tool's name, and then the arguments."""

    def body(tool: Tool, rule: str) -> str:
        return f"{head(tool.name)} {rule}_arguments\n{arguments_rule(tool, rule)}"

    return body


def arguments_rule(tool: Tool, rule: str) -> str:
    if tool.input_lark:
        return _text_rule(tool, rule)
    return f"{rule}_arguments: {lark_json(object_schema(tool), tool.param)}"


def _text_rule(tool: Tool, rule: str) -> str:
    """The grammar of the text stands alone: it may have any names of rules."""
    head = literal(f'{{"{INPUT}": ')
    lark = quoted_text_lark(tool.input_lark, tool.param)
    return f'{rule}_arguments: {head} {rule}_text "}}"\n{rule}_text: %lark {{\n{lark}\n}}'


def object_schema(tool: Tool) -> Mapping[str, object]:
    """The tool's schema, restricted to objects, as arguments are always one."""
    types = tool.parameters.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        message = f"{tool.param}: the parameters of {tool.name!r} must be an object"
        raise Refused.of_kind(ErrorKind.INVALID_REQUEST, message, tool.param)
    return {**tool.parameters, "type": "object"}
