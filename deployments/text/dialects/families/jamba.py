"""Jamba, Apriel and MiniMax M1: a JSON list of calls between two marks."""

from typing import ClassVar

from deployments.text.dialects.layouts.json_list import JsonList
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.json_calls import read_json_calls_through


class Jamba(JsonList):
    """The dialect of Jamba, Apriel and MiniMax M1."""

    name = "jamba"
    opening, closing = "<tool_calls>", "</tool_calls>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    template_signs: ClassVar[tuple[str, ...]] = (opening,)
    openings = ((opening, read_json_calls_through(closing)),)
