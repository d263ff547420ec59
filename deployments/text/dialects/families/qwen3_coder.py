"""Qwen 3 Coder and the Qwen 3.5 family: a function and its parameters in tags."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import call_sequence
from deployments.text.dialects.dialect import Opening, WriteMark
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.layouts.tagged_parameters import (
    CallTags,
    read_tagged_calls,
    tagged_calls_lark,
)
from deployments.text.tool import Tool

CALL = CallTags(
    start="<function=",
    name_end=">",
    key=("<parameter=", ">"),
    value=("", "</parameter>"),
    end="</function>",
    wrapped=True,
)


class Qwen3Coder(MarkedBlocks):
    """The model often leaves out the outer marks, so they are optional."""

    name = "qwen3_coder"
    marks = (OPEN, CLOSE, *THINK)
    thought_marks = THINK
    template_signs = ("<function=",)
    openings = ((OPEN, read_tagged_calls(OPEN, CALL, CLOSE)), (CALL.start, CALL.read))
    opening = OPEN

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        return tagged_calls_lark(OPEN, CALL, CLOSE, tools, parallel, mark)

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        if not CALL.can_write(tools):
            return lark, openings
        unmarked = call_sequence("call", rf'"\n" {mark(CALL.start)}', parallel)
        return f"{lark}unmarked: {unmarked}\n", (*openings, Opening(CALL.start, "unmarked"))
