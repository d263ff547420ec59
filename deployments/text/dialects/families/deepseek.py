"""DeepSeek V3, R1 and V3.1: a block of calls, each with a mark, a name and a code fence."""

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

BAR = "\uff5c"
CALLS, CALLS_END = f"<{BAR}tool▁calls▁begin{BAR}>", f"<{BAR}tool▁calls▁end{BAR}>"
CALL, CALL_END = f"<{BAR}tool▁call▁begin{BAR}>", f"<{BAR}tool▁call▁end{BAR}>"
SEPARATOR = f"<{BAR}tool▁sep{BAR}>"
FENCE, FENCE_END = "```json", "```"
MAX_NAME = 128


def block(reader: ReplyReader) -> Incremental[None]:
    yield from reader.buffer.skip_space()
    yield from reader.buffer.expect(CALL)
    found = CALL
    while found == CALL:
        yield from _call(reader)
        found = yield from reader.buffer.expect_close(CALL, CALLS_END)


def _call(reader: ReplyReader) -> Incremental[None]:
    """V3 writes a type, the name and a code fence. V3.1 writes the name and the arguments only."""
    buffer = reader.buffer
    head, _ = yield from buffer.read_up_to(MAX_NAME, SEPARATOR)
    name = head.strip()
    yield from buffer.skip_space()
    if (yield from buffer.peek()) not in ("{", ""):
        name = yield from reader.read_name()
        yield from buffer.skip_space()
        yield from buffer.expect(FENCE)
    if name not in reader.tools:
        raise NotACall
    yield from read_named_call(reader, name)
    yield from buffer.skip_space()
    yield from buffer.try_read(FENCE_END)
    yield from buffer.expect_close(CALL_END)
    reader.end_call()


class DeepSeek(MarkedBlocks):
    name = "deepseek"
    thought_marks = THINK
    marks = (CALLS, CALLS_END, CALL, CALL_END, SEPARATOR, *THINK)
    openings = ((CALLS, block),)
    thought_breaks = (CALLS,)
    opening = CALLS
    between = r'"\n"'  # two calls, in Lark

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return SEPARATOR in template and FENCE in template

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        def body(tool: Tool, rule: str) -> str:
            before, after = self._around(tool.name, mark(SEPARATOR))
            call = f"{mark(CALL)} {before} {rule}_arguments {after} {mark(CALL_END)}"
            return f"{call}\n{arguments_rule(tool, rule)}"

        listed = call_sequence("call", self.between, parallel)
        return call_rules(f"{listed} {mark(CALLS_END)}", tools, body)

    def _around(self, name: str, separator: str) -> tuple[str, str]:
        """Lark of the text before and after a call's arguments."""
        fence, fence_end = f"{name}\n{FENCE}\n", f"\n{FENCE_END}"
        return f'"function" {separator} {literal(fence)}', literal(fence_end)


class DeepSeek31(DeepSeek):
    name = "deepseek_v31"
    between = ""

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return SEPARATOR in template

    def _around(self, name: str, separator: str) -> tuple[str, str]:
        return f"{literal(name)} {separator}", ""
