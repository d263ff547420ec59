"""Seed OSS: as Qwen 3 Coder, but with its own marks."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.layouts.tagged_parameters import (
    CallTags,
    read_tagged_calls,
    tagged_calls_lark,
)
from deployments.text.tool import Tool

OPEN, CLOSE = "<seed:tool_call>", "</seed:tool_call>"
CALL = CallTags(
    start="<function=",
    name_end=">",
    key=("<parameter=", ">"),
    value=("", "</parameter>"),
    end="</function>",
)


class Seed(MarkedBlocks):
    name = "seed"
    thought_marks = ("<seed:think>", "</seed:think>")
    marks = (OPEN, CLOSE, *thought_marks)
    template_signs = (OPEN, "<seed:think>")
    openings = ((OPEN, read_tagged_calls(OPEN, CALL, CLOSE)),)
    opening = OPEN

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        return tagged_calls_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
