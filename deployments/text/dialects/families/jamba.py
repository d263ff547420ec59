"""Jamba, Apriel and MiniMax M1: a JSON list of calls between two marks."""

from typing import ClassVar

from deployments.text.dialects.layouts.json_list import Listed
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.json_calls import closed_by


class Jamba(Listed):
    """Apriel and MiniMax M1 as well."""

    name = "jamba"
    opening, closing = "<tool_calls>", "</tool_calls>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    signs: ClassVar[tuple[str, ...]] = (opening,)
    openings = ((opening, closed_by(closing)),)
