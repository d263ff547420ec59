"""GLM 4.5 and later: a name, and keys and values between marks."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.layouts.tagged_parameters import Markup, marked_calls, marked_lark
from deployments.text.tool import Tool

CALL = Markup(
    start=OPEN,
    name_end="",
    key=("<arg_key>", "</arg_key>"),
    value=("<arg_value>", "</arg_value>"),
    end=CLOSE,
)


class Glm(Family):
    name = "glm"
    marks = (OPEN, CLOSE, *CALL.key, *CALL.value, *THINK)
    thought_marks = THINK
    signs = ("<arg_key>",)
    openings = ((OPEN, marked_calls(OPEN, CALL, CLOSE)),)
    opening = OPEN

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        return marked_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
