"""Lark of calls, as llguidance reads it: arguments fit the tools' schemas, and calls end.

Rules are named `calls`, `call` and `call_0` onwards with the suffixes of their parts.
"""

import json
from collections.abc import Callable, Mapping, Sequence

from deployments.text.dialects.dialect import Tool
from deployments.text.grammar import lark_json
from deployments.wire import ErrorKind, Refused, RequestError

MAX_CALLS = 32  # in one reply, when they are constrained
Body = Callable[[Tool, str], str]  # from a tool and the name of its rule


def literal(text: str) -> str:
    return json.dumps(text)


def calls_lark(calls: str, tools: Sequence[Tool], body: Body) -> str:
    """`calls` says in terms of `call` what stands around the calls, `body` what one call is.

    A body is the right side of its tool's rule; lines of its own rules may follow it.
    """
    rules = [f"call_{index}" for index in range(len(tools))]
    lines = [f"calls: {calls}", f"call: {' | '.join(rules)}"]
    lines += [f"{rule}: {body(tool, rule)}" for rule, tool in zip(rules, tools, strict=True)]
    return "\n".join(lines) + "\n"


def several(one: str, between: str, parallel: bool) -> str:
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


def json_call(arguments: str = "arguments", name: str = "name") -> Body:
    """An object of a name and the arguments, under the keys that the dialect has for them."""

    def body(tool: Tool, rule: str) -> str:
        start = f'{{"{name}": {json.dumps(tool.name)}, "{arguments}": '
        return f'{literal(start)} {rule}_arguments "}}"\n{arguments_rule(tool, rule)}'

    return body


def headed_call(head: Callable[[str], str]) -> Body:
    """What stands before the arguments, made from the name, and the arguments alone."""

    def body(tool: Tool, rule: str) -> str:
        return f"{head(tool.name)} {rule}_arguments\n{arguments_rule(tool, rule)}"

    return body


def arguments_rule(tool: Tool, rule: str) -> str:
    return f"{rule}_arguments: {lark_json(object_schema(tool), 'tools')}"


def object_schema(tool: Tool) -> Mapping[str, object]:
    """The tool's schema as one of an object, which its arguments are."""
    types = tool.parameters.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        message = f"tools: the parameters of {tool.name!r} are no object"
        raise Refused(RequestError(ErrorKind.INVALID_REQUEST, message, "tools"))
    return {**tool.parameters, "type": "object"}
