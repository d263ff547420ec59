"""Nemotron Nano 2: a JSON list of calls between two marks."""

from deployments.text.dialects.layouts.json_list import Listed
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.json_calls import closed_by


class Nemotron(Listed):
    """Nemotron Nano 2; its successors speak Qwen 3 Coder's."""

    name = "nemotron"
    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    signs = (opening,)
    openings = ((opening, closed_by(closing)),)
