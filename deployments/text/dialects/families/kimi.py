"""Kimi K2: a section of calls, each behind an id that holds the tool's name and is kept."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import arguments_rule, calls_lark, literal, several
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.parsing.incremental import NoCall, Steps
from deployments.text.dialects.parsing.json_calls import named_call
from deployments.text.dialects.parsing.reading import Reading
from deployments.text.tool import Tool

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
PREFIX = "functions."
MAX_ID = 160


def section(reading: Reading) -> Steps[None]:
    yield from reading.source.space()
    yield from reading.source.expect(CALL)
    found = CALL
    while found == CALL:
        yield from _call(reading)
        found = yield from reading.source.close(CALL, SECTION_END)


def _call(reading: Reading) -> Steps[None]:
    written, _ = yield from reading.source.upto(MAX_ID, ARGUMENTS)
    call_id = written.strip()
    name = call_id.removeprefix(PREFIX)
    head, colon, index = name.rpartition(":")
    numbered = bool(colon) and index.isdigit()
    name = head if numbered else name
    if name not in reading.tools:
        raise NoCall
    yield from named_call(reading, name, call_id if numbered else None)
    yield from reading.source.close(CALL_END)
    reading.end_call()


class Kimi(Family):
    name = "kimi"
    thought_marks = THINK
    marks = (SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, *THINK)
    signs = (SECTION,)
    openings = ((SECTION, section),)
    breaks = (SECTION,)
    opening = SECTION

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        def body(tool: Tool, rule: str) -> str:
            head = f"{mark(CALL)} {literal(PREFIX + tool.name + ':')} /[0-9]{{1,2}}/"
            call = f"{head} {mark(ARGUMENTS)} {rule}_arguments {mark(CALL_END)}"
            return f"{call}\n{arguments_rule(tool, rule)}"

        listed = several("call", "", parallel)
        return calls_lark(f"{listed} {mark(SECTION_END)}", tools, body)

    def call_id(self, index: int, name: str) -> str:
        return f"{PREFIX}{name}:{index}"

    def template_id(self, call_id: str, name: str, index: int) -> str:
        """One that its own model did not make says nothing of the function, and templates show no
        more of it.
        """
        head, _, number = call_id.rpartition(":")
        is_own = head == PREFIX + name and number.isdecimal()
        return call_id if is_own else self.call_id(index, name)
