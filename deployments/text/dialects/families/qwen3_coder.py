"""Qwen 3 Coder and the Qwen 3.5 family: a function and its parameters in markup."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.layouts.tagged_parameters import Markup, marked_calls, marked_lark
from deployments.text.tool import Tool

CALL = Markup(
    start="<function=",
    name_end=">",
    key=("<parameter=", ">"),
    value=("", "</parameter>"),
    end="</function>",
    wrapped=True,
)


class Qwen3Coder(Family):
    """The outer marks are often forgotten, and then not missed."""

    name = "qwen3_coder"
    marks = (OPEN, CLOSE, *THINK)
    thought_marks = THINK
    signs = ("<function=",)
    openings = ((OPEN, marked_calls(OPEN, CALL, CLOSE)), (CALL.start, CALL.read))
    opening = OPEN

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        return marked_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
