"""Granite 3: a list of JSON objects behind a mark; thoughts between marks or behind sentences.

Granite 4 speaks Hermes.
"""

from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.json_list import Listed
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.json_calls import closed_by, json_calls

CALLS = "<|tool_call|>"
SENTENCES = ("Here is my thought process:", "Here is my response:")
SHORT_SENTENCES = ("Here's my thought process:", "Here's my response:")


class Granite(Listed):
    name = "granite"
    thought_marks: tuple[str, str] | None = THINK
    thoughts = (SENTENCES, SHORT_SENTENCES)
    frame = ("<response>", "</response>")
    marks: tuple[str, ...] = (CALLS, OPEN, CLOSE, *THINK)
    openings = ((CALLS, json_calls), (OPEN, closed_by(CLOSE)))
    opening = CALLS

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return "<|start_of_role|>" in template and OPEN not in template


class Granite32(Granite):
    name = "granite_v32"
    thought_marks = SENTENCES
    thoughts = (SHORT_SENTENCES, THINK)
    marks = (CALLS, OPEN, CLOSE, *SENTENCES)

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return super().is_spoken_by(template) and SENTENCES[0] in template
