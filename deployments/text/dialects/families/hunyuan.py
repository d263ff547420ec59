"""Hunyuan: lists of calls and framed answers; since Hy3, GLM's parameters in a block of calls."""

from collections.abc import Sequence
from dataclasses import replace

from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.families.glm import CALL as GLM_CALL
from deployments.text.dialects.families.jamba import Jamba
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.layouts.tagged_parameters import read_tagged_calls, tagged_calls_lark
from deployments.text.tool import Tool

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"
SEPARATOR = "<tool_sep>"
CALL = replace(GLM_CALL, name_end=SEPARATOR)


class Hunyuan(Jamba):
    """Hunyuan A13B and the dense models."""

    name = "hunyuan"
    template_signs = ("<|extra_0|>", "<\uff5chy_Assistant\uff5c>")
    answer_frame = ("<answer>", "</answer>")


class Hunyuan3(MarkedBlocks):
    name = "hunyuan_v3"
    thought_marks = THINK
    marks = (OPEN, CLOSE, CALL.start, CALL.end, SEPARATOR, *CALL.key, *CALL.value, *THINK)
    template_signs = (SEPARATOR,)
    openings = ((OPEN, read_tagged_calls(OPEN, CALL, CLOSE)),)
    opening = OPEN

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        return tagged_calls_lark(OPEN, CALL, CLOSE, tools, parallel, mark)
