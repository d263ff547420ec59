"""Lark of calls, as llguidance reads it: arguments fit the tools' schemas, and calls end.

Rules are named `listed` for the calls behind the mark that opens them, `call` for one of them, and
`call_0` onwards for those of each tool, with the suffixes of their parts.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from deployments.text.grammar.grammar import lark_json, lenient_lark_json
from deployments.text.tool import Tool
from deployments.wire import ErrorKind, Refused

MAX_CALLS = 32  # in one reply, when they are constrained
CallBody = Callable[[Tool, str], str]  # from a tool and the name of its rule
ANY = "/(?s:.*)/"
SPACES = r"/[\s\x1c-\x1f]*/"  # what Python takes for whitespace
# Any object, in words that no one takes for a list of no parameters.
ANY_OBJECT: Mapping[str, object] = {"type": "object", "minProperties": 0}


def literal(text: str) -> str:
    return json.dumps(text)


def without(*texts: str) -> str:
    """Text in which none of the texts stands, as a part of a lexeme."""
    return f"{ANY} & ~({ANY} {_either(texts)} {ANY})"


def not_first(*texts: str) -> str:
    """What `without` is to be joined with where none of the texts may begin the text either."""
    return f" & ~({SPACES} {_either(texts)} {ANY})" if texts else ""


def through(rule: str, lexeme: str, end: str) -> str:
    """A rule of the text of a lexeme and the mark behind it, `end` as Lark writes it."""
    if end.startswith("<"):  # a special token, which no text runs into
        return f"{rule}: {lexeme} {end}"
    return f"{rule}[suffix={end}]: {lexeme}"


def _either(texts: Iterable[str]) -> str:
    return f"({' | '.join(map(literal, texts))})"


def constrainable(tool: Tool) -> Tool:
    """The tool, or for one whose calls may but need not fit its schema, where no grammar can hold
    them to it, one that is held lenient so, or to nothing. Raises Refused for a strict one.
    """
    if tool.strict:
        arguments_rule(tool, "")
        return tool
    for one in (tool, replace(tool, lenient=True)):
        with suppress(Refused):
            arguments_rule(one, "")
            return one
    return replace(tool, parameters=ANY_OBJECT)


def call_rules(listed: str, tools: Sequence[Tool], body: CallBody) -> str:
    """`listed` says in terms of `call` what stands around the calls, `body` what one call is.

    A body is the right side of its tool's rule; lines of its own rules may follow it.
    """
    rules = [f"call_{index}" for index in range(len(tools))]
    lines = [f"listed: {listed}", f"call: {' | '.join(rules)}"]
    lines += [f"{rule}: {body(tool, rule)}" for rule, tool in zip(rules, tools, strict=True)]
    return "\n".join(lines) + "\n"


def several(one: str, between: str, parallel: bool) -> str:
    """`between` has the mark that opens each of the calls, where each has its own."""
    return f"{one} ({between} {one}){{0,{MAX_CALLS - 1}}}" if parallel else one


def in_order(rule: str, items: Sequence[tuple[str, bool]], between: str) -> list[str]:
    """`RULE_list`: the items in their order, those not required there or not."""
    lines = [f'{rule}_first{len(items)}: ""', f'{rule}_next{len(items)}: ""']
    for index, (item, required) in enumerate(items):
        rest = f"{rule}_next{index + 1}"
        other = "" if required else f" | {rule}_first{index + 1}"
        follows = f"{between} {item}" if required else f"({between} {item})?"
        lines += [f"{rule}_first{index}: {item} {rest}{other}"]
        lines += [f"{rule}_next{index}: {follows} {rest}"]
    return [f"{rule}_list: {rule}_first0", *lines]


def json_call_body(arguments: str = "arguments", name: str = "name") -> CallBody:
    """An object of a name and the arguments, under the keys that the dialect has for them."""

    def body(tool: Tool, rule: str) -> str:
        start = f'{{"{name}": {json.dumps(tool.name)}, "{arguments}": '
        return f'{literal(start)} {rule}_arguments "}}"\n{arguments_rule(tool, rule)}'

    return body


def headed_call_body(head: Callable[[str], str]) -> CallBody:
    """What stands before the arguments, made from the name, and the arguments alone."""

    def body(tool: Tool, rule: str) -> str:
        return f"{head(tool.name)} {rule}_arguments\n{arguments_rule(tool, rule)}"

    return body


def arguments_rule(tool: Tool, rule: str) -> str:
    write = lenient_lark_json if tool.lenient else lark_json
    return f"{rule}_arguments: {write(object_schema(tool), tool.param)}"


def object_schema(tool: Tool) -> Mapping[str, object]:
    """The tool's schema as one of an object, which its arguments are."""
    types = tool.parameters.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        message = f"{tool.param}: the parameters of {tool.name!r} are no object"
        raise Refused.of_kind(ErrorKind.INVALID_REQUEST, message, tool.param)
    return {**tool.parameters, "type": "object"}
