"""Kimi K2: a section of calls, each after an id that contains the tool's name."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    arguments_rule,
    call_rules,
    call_sequence,
    literal,
)
from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.parsing.incremental import Incremental, NotACall
from deployments.text.dialects.parsing.json_calls import read_named_call
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.tool import Tool

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
PREFIX = "functions."
MAX_ID = 160


def section(reader: ReplyReader) -> Incremental[None]:
    yield from reader.buffer.skip_space()
    yield from reader.buffer.expect(CALL)
    found = CALL
    while found == CALL:
        yield from _call(reader)
        found = yield from reader.buffer.expect_close(CALL, SECTION_END)


def _call(reader: ReplyReader) -> Incremental[None]:
    written, _ = yield from reader.buffer.read_up_to(MAX_ID, ARGUMENTS)
    call_id = written.strip()
    name = call_id.removeprefix(PREFIX)
    head, colon, index = name.rpartition(":")
    numbered = bool(colon) and index.isdigit()
    name = head if numbered else name
    if name not in reader.tools:
        raise NotACall
    yield from read_named_call(reader, name, call_id if numbered else None)
    yield from reader.buffer.expect_close(CALL_END)
    reader.end_call()


class Kimi(MarkedBlocks):
    name = "kimi"
    thought_marks = THINK
    marks = (SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, *THINK)
    template_signs = (SECTION,)
    openings = ((SECTION, section),)
    thought_breaks = (SECTION,)
    opening = SECTION

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        def body(tool: Tool, rule: str) -> str:
            head = f"{mark(CALL)} {literal(PREFIX + tool.name + ':')} /[0-9]{{1,2}}/"
            call = f"{head} {mark(ARGUMENTS)} {rule}_arguments {mark(CALL_END)}"
            return f"{call}\n{arguments_rule(tool, rule)}"

        listed = call_sequence("call", "", parallel)
        return call_rules(f"{listed} {mark(SECTION_END)}", tools, body)

    def call_id(self, index: int, name: str) -> str:
        return f"{PREFIX}{name}:{index}"

    def template_id(self, call_id: str, name: str, index: int) -> str:
        """Templates show only the id, so an id that another model made gets the function's name."""
        head, _, number = call_id.rpartition(":")
        is_own = head == PREFIX + name and number.isdecimal()
        return call_id if is_own else self.call_id(index, name)
