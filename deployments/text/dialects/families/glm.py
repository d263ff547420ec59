"""GLM 4.5 and later: a name, and keys and values between marks."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.layouts.tagged_parameters import (
    CallTags,
    read_tagged_calls,
    tagged_calls_lark,
)
from deployments.text.tool import Tool

CALL = CallTags(
    start=OPEN,
    name_end="",
    key=("<arg_key>", "</arg_key>"),
    value=("<arg_value>", "</arg_value>"),
    end=CLOSE,
    newline=r'("\n")?',  # GLM 4.5 has one, GLM 4.7 none
)


class Glm(MarkedBlocks):
    name = "glm"
    marks = (OPEN, CLOSE, *CALL.key, *CALL.value, *THINK)
    thought_marks = THINK
    template_signs = ("<arg_key>",)
    openings = ((OPEN, read_tagged_calls(OPEN, CALL, CLOSE)),)
    opening = OPEN

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        return tagged_calls_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
