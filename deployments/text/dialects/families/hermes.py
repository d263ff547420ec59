"""Hermes, Qwen 2.5 and 3, and the many that copied them: a JSON object between two marks."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import calls_lark, json_call, several
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.parsing.json_calls import closed_by
from deployments.text.tool import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def marked_text(calls: Sequence[str]) -> str:
    return "\n".join(f"{OPEN}\n{call}\n{CLOSE}" for call in calls)


class Hermes(Family):
    name = "hermes"
    marks: tuple[str, ...] = (OPEN, CLOSE, *THINK)
    thought_marks: tuple[str, str] | None = THINK
    signs = (OPEN,)
    openings = ((OPEN, closed_by(CLOSE)),)
    opening = OPEN

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        one = rf'"\n" call "\n" {mark(CLOSE)}'
        return calls_lark(several(one, rf'"\n" {mark(OPEN)}', parallel), tools, json_call())

    def as_text(self, calls: Sequence[str]) -> str:
        return marked_text(calls)
