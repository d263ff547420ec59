"""MiniMax M2: invocations with parameters, one block for all of them."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.layouts.tagged_parameters import (
    CallTags,
    read_tagged_calls,
    tagged_calls_lark,
)
from deployments.text.tool import Tool

OPEN, CLOSE = "<minimax:tool_call>", "</minimax:tool_call>"
CALL = CallTags(
    start='<invoke name="',
    name_end='">',
    key=('<parameter name="', '">'),
    value=("", "</parameter>"),
    end="</invoke>",
)


class MiniMax(MarkedBlocks):
    name = "minimax"
    marks = (OPEN, CLOSE, *THINK)
    thought_marks = THINK
    template_signs = (OPEN,)
    openings = ((OPEN, read_tagged_calls(OPEN, CALL, CLOSE)),)
    opening = OPEN

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        return tagged_calls_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
