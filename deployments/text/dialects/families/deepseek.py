"""DeepSeek V3, R1 and V3.1: a block of calls, each behind a mark with its name and a fence."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import arguments_rule, calls_lark, literal, several
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.parsing.incremental import NoCall, Steps
from deployments.text.dialects.parsing.json_calls import named_call
from deployments.text.dialects.parsing.reading import Reading
from deployments.text.tool import Tool

BAR = "\uff5c"
CALLS, CALLS_END = f"<{BAR}tool▁calls▁begin{BAR}>", f"<{BAR}tool▁calls▁end{BAR}>"
CALL, CALL_END = f"<{BAR}tool▁call▁begin{BAR}>", f"<{BAR}tool▁call▁end{BAR}>"
SEPARATOR = f"<{BAR}tool▁sep{BAR}>"
FENCE, FENCE_END = "```json", "```"
MAX_NAME = 128


def block(reading: Reading) -> Steps[None]:
    yield from reading.source.space()
    yield from reading.source.expect(CALL)
    found = CALL
    while found == CALL:
        yield from _call(reading)
        found = yield from reading.source.close(CALL, CALLS_END)


def _call(reading: Reading) -> Steps[None]:
    """V3 writes a type, then the name and a fence; V3.1 the name, then the arguments alone."""
    source = reading.source
    head, _ = yield from source.upto(MAX_NAME, SEPARATOR)
    name = head.strip()
    yield from source.space()
    if (yield from source.peek()) not in ("{", ""):
        name = yield from reading.name_here()
        yield from source.space()
        yield from source.expect(FENCE)
    if name not in reading.tools:
        raise NoCall
    yield from named_call(reading, name)
    yield from source.space()
    yield from source.one_of(FENCE_END)
    yield from source.close(CALL_END)
    reading.end_call()


class DeepSeek(Family):
    name = "deepseek"
    thought_marks = THINK
    marks = (CALLS, CALLS_END, CALL, CALL_END, SEPARATOR, *THINK)
    openings = ((CALLS, block),)
    breaks = (CALLS,)
    opening = CALLS

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return SEPARATOR in template and FENCE in template

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        def body(tool: Tool, rule: str) -> str:
            before, after = self._around(tool.name, mark(SEPARATOR))
            call = f"{mark(CALL)} {before} {rule}_arguments {after} {mark(CALL_END)}"
            return f"{call}\n{arguments_rule(tool, rule)}"

        listed = several("call", r'"\n"', parallel)
        return calls_lark(f"{listed} {mark(CALLS_END)}", tools, body)

    def _around(self, name: str, separator: str) -> tuple[str, str]:
        """Lark of what stands before and behind a call's arguments."""
        fence, fence_end = f"{name}\n{FENCE}\n", f"\n{FENCE_END}"
        return f'"function" {separator} {literal(fence)}', literal(fence_end)


class DeepSeek31(DeepSeek):
    name = "deepseek_v31"

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return SEPARATOR in template

    def _around(self, name: str, separator: str) -> tuple[str, str]:
        return f"{literal(name)} {separator}", ""
