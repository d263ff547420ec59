"""Seed OSS: as Qwen 3 Coder, between marks of its own."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import Family
from deployments.text.dialects.layouts.tagged_parameters import Markup, marked_calls, marked_lark
from deployments.text.tool import Tool

OPEN, CLOSE = "<seed:tool_call>", "</seed:tool_call>"
CALL = Markup(
    start="<function=",
    name_end=">",
    key=("<parameter=", ">"),
    value=("", "</parameter>"),
    end="</function>",
)


class Seed(Family):
    name = "seed"
    thought_marks = ("<seed:think>", "</seed:think>")
    marks = (OPEN, CLOSE, *thought_marks)
    signs = (OPEN, "<seed:think>")
    openings = ((OPEN, marked_calls(OPEN, CALL, CLOSE)),)
    opening = OPEN

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        return marked_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
