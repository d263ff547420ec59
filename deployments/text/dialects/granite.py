"""Granite 3: a list of JSON objects behind a mark; thoughts between marks or behind sentences.

Granite 4 speaks Hermes.
"""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark, Tool
from deployments.text.dialects.family import THINK, Family
from deployments.text.dialects.grammars import calls_lark, json_call, several
from deployments.text.dialects.hermes import CLOSE, OPEN, marked_json
from deployments.text.dialects.json_calls import json_calls

CALLS = "<|tool_call|>"


class Granite(Family):
    name = "granite"
    thought_marks = THINK
    thoughts = (
        ("Here is my thought process:", "Here is my response:"),
        ("Here's my thought process:", "Here's my response:"),
    )
    marks = (CALLS, OPEN, CLOSE, *THINK)
    openings = ((CALLS, json_calls), (OPEN, marked_json))
    opening = CALLS

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return "<|start_of_role|>" in template and OPEN not in template

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        listed = several("call", '", "', parallel)
        return calls_lark(f'"[" {listed} "]"', tools, json_call())
