"""Granite 3: a list of JSON objects behind a mark; thoughts between marks or behind sentences.

Granite 4 speaks Hermes.
"""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import call_sequence
from deployments.text.dialects.dialect import Opening, WriteMark
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.json_list import JsonList
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.json_calls import read_json_calls, read_json_calls_through
from deployments.text.tool import Tool

CALLS = "<|tool_call|>"
SENTENCES = ("Here is my thought process:", "Here is my response:")
SHORT_SENTENCES = ("Here's my thought process:", "Here's my response:")


class Granite(JsonList):
    name = "granite"
    thought_marks: tuple[str, str] | None = THINK
    more_thought_marks = (SENTENCES, SHORT_SENTENCES)
    answer_frame = ("<response>", "</response>")
    marks: tuple[str, ...] = (CALLS, OPEN, CLOSE, *THINK)
    openings = ((CALLS, read_json_calls), (OPEN, read_json_calls_through(CLOSE)))
    opening = CALLS

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return "<|start_of_role|>" in template and OPEN not in template

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        listed = call_sequence("call", '", "', parallel)
        tagged = rf'tagged: /\n?/ (call | "[" {listed} "]") /\n?/ {mark(CLOSE)}'
        return f"{lark}{tagged}\n", (*openings, Opening(OPEN, "tagged"))


class Granite32(Granite):
    name = "granite_v32"
    thought_marks = SENTENCES
    more_thought_marks = (SHORT_SENTENCES, THINK)
    marks = (CALLS, OPEN, CLOSE, *SENTENCES)

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return super().matches_template(template) and SENTENCES[0] in template
