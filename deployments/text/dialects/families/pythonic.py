"""Llama 3.2 and 4, LFM2 and OLMo 3: calls in Python's syntax."""

import re
from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    CallBody,
    bare_json_openings,
    call_rules,
    call_sequence,
    json_call_body,
    literal,
    ordered_items,
)
from deployments.text.dialects.dialect import Opening, WriteMark
from deployments.text.dialects.layouts.marked_blocks import THINK, CallReader, MarkedBlocks
from deployments.text.dialects.parameter_grammar import parameters_of
from deployments.text.dialects.parsing.incremental import Incremental, NotACall
from deployments.text.dialects.parsing.json_calls import read_separated_calls
from deployments.text.dialects.parsing.literals import MAX_WORD, LiteralReader, to_json
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.grammar.grammar import lark_json
from deployments.text.tool import Tool

KEYWORD = re.compile(r"[^\W\d]\w*[ \t]*=?")
BLOCKS = (
    ("<|python_start|>", "<|python_end|>"),
    ("<|tool_call_start|>", "<|tool_call_end|>"),
    ("<function_calls>", "</function_calls>"),
)


def python_call(reader: ReplyReader) -> Incremental[None]:
    name, _ = yield from reader.read_name_until("(")
    yield from reader.buffer.skip_space()
    first, ended = True, (yield from reader.buffer.try_read(")"))
    while ended != ")":
        key = yield from _keyword(reader, name if first else "")
        reader.emit_arguments(("{" if first else ", ") + to_json(key) + ": ")
        first = False
        yield from LiteralReader(reader.buffer, reader.emit_arguments).read()
        yield from reader.buffer.skip_space()
        ended = yield from reader.buffer.expect(",", ")")
        yield from reader.buffer.skip_space()
        ended = (yield from reader.buffer.try_read(")")) if ended == "," else ended
    if first:
        reader.begin_call(name)
    reader.emit_arguments("{}" if first else "}")
    reader.end_call()


def _keyword(reader: ReplyReader, call: str) -> Incremental[str]:
    """The name of an argument. The call begins with its first argument."""
    written = yield from reader.buffer.look_ahead(KEYWORD, MAX_WORD)
    if call and (written.endswith("=") or reader.buffer.hit_end):
        reader.begin_call(call)
    if not written.endswith("="):
        raise NotACall
    reader.buffer.take(written)
    yield from reader.buffer.skip_space()
    return written[:-1].rstrip()


def python_list(reader: ReplyReader) -> Incremental[None]:
    ended = yield from reader.buffer.expect("[")
    while ended != "]":
        yield from reader.buffer.skip_space()
        yield from python_call(reader)
        yield from reader.buffer.skip_space()
        ended = yield from reader.buffer.expect(",", "]")


def calls_or_json(reader: ReplyReader) -> Incremental[None]:
    """A list of calls, or calls as JSON objects, which these models also write."""
    if (yield from reader.buffer.peek()) == "{":
        yield from read_separated_calls(reader)
    else:
        yield from python_list(reader)


def block(closing: str) -> CallReader:
    """Between marks: a list, or without brackets one call a line."""

    def read(reader: ReplyReader) -> Incremental[None]:
        buffer = reader.buffer
        yield from buffer.skip_space()
        if (yield from buffer.peek()) in ("[", "{"):
            yield from calls_or_json(reader)
        else:
            yield from python_call(reader)
            yield from buffer.skip_space()
            while (yield from buffer.peek()) not in ("", closing[0]):
                yield from python_call(reader)
                yield from buffer.skip_space()
        yield from buffer.expect_close(closing)

    return read


def python_body(tool: Tool, rule: str) -> str:
    parameters = parameters_of(tool) or ()
    named = [(f"{rule}_{index}", each) for index, each in enumerate(parameters)]
    lines = ordered_items(rule, [(part, each.required) for part, each in named], '", "')
    for part, each in named:
        value = f"{part}_value: {lark_json(each.schema, 'tools')}"
        lines += [f"{part}: {literal(each.name + '=')} {part}_value", value]
    return "\n".join([f'{literal(tool.name + "(")} {rule}_list ")"', *lines])


class Pythonic(MarkedBlocks):
    """If a schema is more than a list of parameters, the grammar is that of JSON calls."""

    name = "pythonic"
    thought_marks = THINK
    marks = (*(mark for pair in BLOCKS for mark in pair), *THINK)
    template_signs = ("<|python_start|>", "<|tool_call_start|>", "<function_calls>", "[func_name1(")
    openings = tuple((opening, block(closing)) for opening, closing in BLOCKS)
    bare_openings = (("[", calls_or_json), ("{", calls_or_json))
    opening = BLOCKS[0][0]
    unmarked_calls = True

    def opened_by(self, mark: WriteMark) -> str:
        known = (opening for opening, _ in BLOCKS if mark(opening).startswith("<"))
        return next(known, self.opening)

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        if not all(_is_python(tool) for tool in tools):
            return call_rules(
                call_sequence("call", '"; "', parallel), tools, json_call_body("parameters")
            )
        body: CallBody = python_body
        return call_rules(f'"[" {call_sequence("call", literal(", "), parallel)} "]"', tools, body)

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        is_python = all(map(_is_python, tools))
        lark, prefix, openings = self.listed_lark(tools, parallel, mark), "", list[Opening]()
        if is_python:
            prefix = "json_"
            lark += call_rules('""', tools, json_call_body("parameters"), prefix)
            openings = [
                Opening(f"[{tool.name}(", "listed", f"[{tool.name}(", compact=True)
                for tool in tools
            ]
        for index, (start, end) in enumerate(BLOCKS):
            lark += f"block_{index}: listed {mark(end)}?\n"
            openings.append(Opening(start, f"block_{index}"))
        lines, bare = bare_json_openings(tools, parallel, prefix)
        # No lists of them are read.
        objects = [opening for opening in bare if opening.mark.startswith("{")]
        return lark + lines, (*openings, *objects)


def _is_python(tool: Tool) -> bool:
    parameters = parameters_of(tool)
    return parameters is not None and all(each.name.isidentifier() for each in parameters)
