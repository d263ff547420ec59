"""Nemotron Nano 2: a JSON list of calls between two marks."""

from deployments.text.dialects.layouts.json_list import JsonList
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.json_calls import read_json_calls_through


class Nemotron(JsonList):
    """Nemotron Nano 2. Its successors write Qwen 3 Coder's dialect."""

    name = "nemotron"
    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    template_signs = (opening,)
    openings = ((opening, read_json_calls_through(closing)),)
