"""Hermes, Qwen 2.5 and 3, and many that copied them: a JSON object between two marks."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import call_rules, call_sequence, json_call_body
from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.parsing.json_calls import read_json_calls_through
from deployments.text.tool import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def marked_text(calls: Sequence[str]) -> str:
    return "\n".join(f"{OPEN}\n{call}\n{CLOSE}" for call in calls)


class Hermes(MarkedBlocks):
    name = "hermes"
    marks: tuple[str, ...] = (OPEN, CLOSE, *THINK)
    thought_marks: tuple[str, str] | None = THINK
    template_signs = (OPEN,)
    openings = ((OPEN, read_json_calls_through(CLOSE)),)
    opening = OPEN

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        one = rf'"\n" call "\n" {mark(CLOSE)}'
        return call_rules(
            call_sequence(one, rf'"\n" {mark(OPEN)}', parallel), tools, json_call_body()
        )

    def as_text(self, calls: Sequence[str]) -> str:
        return marked_text(calls)
