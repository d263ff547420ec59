"""Llama 3.2 and 4, LFM2 and OLMo 3: calls written as Python does."""

import re
from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    Body,
    calls_lark,
    in_order,
    json_call,
    literal,
    several,
)
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import THINK, Family, Form
from deployments.text.dialects.parameter_grammar import parameters_of
from deployments.text.dialects.parsing.incremental import NoCall, Steps
from deployments.text.dialects.parsing.json_calls import separated_calls
from deployments.text.dialects.parsing.literals import MAX_WORD, Literals, to_json
from deployments.text.dialects.parsing.reading import Reading
from deployments.text.grammar.grammar import lark_json
from deployments.text.tool import Tool

KEYWORD = re.compile(r"[^\W\d]\w*[ \t]*=?")
BLOCKS = (
    ("<|python_start|>", "<|python_end|>"),
    ("<|tool_call_start|>", "<|tool_call_end|>"),
    ("<function_calls>", "</function_calls>"),
)


def python_call(reading: Reading) -> Steps[None]:
    name, _ = yield from reading.name_until("(")
    yield from reading.source.space()
    first, ended = True, (yield from reading.source.one_of(")"))
    while ended != ")":
        key = yield from _keyword(reading, name if first else "")
        reading.arguments(("{" if first else ", ") + to_json(key) + ": ")
        first = False
        yield from Literals(reading.source, reading.arguments).value()
        yield from reading.source.space()
        ended = yield from reading.source.expect(",", ")")
        yield from reading.source.space()
        ended = (yield from reading.source.one_of(")")) if ended == "," else ended
    if first:
        reading.begin_call(name)
    reading.arguments("{}" if first else "}")
    reading.end_call()


def _keyword(reading: Reading, call: str) -> Steps[str]:
    """The name of an argument; with the first, the call begins."""
    written = yield from reading.source.ahead(KEYWORD, MAX_WORD)
    if call and (written.endswith("=") or reading.source.short):
        reading.begin_call(call)
    if not written.endswith("="):
        raise NoCall
    reading.source.take(written)
    yield from reading.source.space()
    return written[:-1].rstrip()


def python_list(reading: Reading) -> Steps[None]:
    ended = yield from reading.source.expect("[")
    while ended != "]":
        yield from reading.source.space()
        yield from python_call(reading)
        yield from reading.source.space()
        ended = yield from reading.source.expect(",", "]")


def calls_or_json(reading: Reading) -> Steps[None]:
    """A list of calls; what begins with an object is the JSON that these models know as well."""
    if (yield from reading.source.peek()) == "{":
        yield from separated_calls(reading)
    else:
        yield from python_list(reading)


def block(closing: str) -> Form:
    """Between marks: a list, or without its brackets a call a line."""

    def read(reading: Reading) -> Steps[None]:
        source = reading.source
        yield from source.space()
        if (yield from source.peek()) in ("[", "{"):
            yield from calls_or_json(reading)
        else:
            yield from python_call(reading)
            yield from source.space()
            while (yield from source.peek()) not in ("", closing[0]):
                yield from python_call(reading)
                yield from source.space()
        yield from source.close(closing)

    return read


def python_body(tool: Tool, rule: str) -> str:
    parameters = parameters_of(tool) or ()
    named = [(f"{rule}_{index}", each) for index, each in enumerate(parameters)]
    lines = in_order(rule, [(part, each.required) for part, each in named], '", "')
    for part, each in named:
        value = f"{part}_value: {lark_json(each.schema, 'tools')}"
        lines += [f"{part}: {literal(each.name + '=')} {part}_value", value]
    return "\n".join([f'{literal(tool.name + "(")} {rule}_list ")"', *lines])


class Pythonic(Family):
    """Where a schema is more than a list of parameters the grammar is that of JSON calls."""

    name = "pythonic"
    thought_marks = THINK
    marks = (*(mark for pair in BLOCKS for mark in pair), *THINK)
    signs = ("<|python_start|>", "<|tool_call_start|>", "<function_calls>", "[func_name1(")
    openings = tuple((opening, block(closing)) for opening, closing in BLOCKS)
    bare = (("[", calls_or_json), ("{", calls_or_json))
    opening = BLOCKS[0][0]
    unmarked = True

    def opened_by(self, mark: Mark) -> str:
        known = (opening for opening, _ in BLOCKS if mark(opening).startswith("<"))
        return next(known, self.opening)

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        if not all(_is_python(tool) for tool in tools):
            return calls_lark(several("call", '"; "', parallel), tools, json_call("parameters"))
        body: Body = python_body
        return calls_lark(f'"[" {several("call", literal(", "), parallel)} "]"', tools, body)


def _is_python(tool: Tool) -> bool:
    parameters = parameters_of(tool)
    return parameters is not None and all(each.name.isidentifier() for each in parameters)
