"""MiniMax M2: invocations with parameters, one block for all of them."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.layouts.tagged_parameters import Markup, marked_calls, marked_lark
from deployments.text.tool import Tool

OPEN, CLOSE = "<minimax:tool_call>", "</minimax:tool_call>"
CALL = Markup(
    start='<invoke name="',
    name_end='">',
    key=('<parameter name="', '">'),
    value=("", "</parameter>"),
    end="</invoke>",
)


class MiniMax(Family):
    name = "minimax"
    marks = (OPEN, CLOSE, *THINK)
    thought_marks = THINK
    signs = (OPEN,)
    openings = ((OPEN, marked_calls(OPEN, CALL, CLOSE)),)
    opening = OPEN

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        return marked_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
