"""Families whose calls are a JSON list behind a mark, most of them before another."""

from collections.abc import Sequence
from typing import ClassVar

from deployments.text.dialects.call_grammar import calls_lark, json_call, several
from deployments.text.dialects.dialect import Mark, Tool
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.parsing.json_calls import closed_by


class Listed(Family):
    closing: ClassVar[str] = ""

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        listed = several("call", '", "', parallel)
        closing = mark(self.closing) if self.closing else ""
        return calls_lark(f'"[" {listed} "]" {closing}', tools, json_call())

    def as_text(self, calls: Sequence[str]) -> str:
        return f"{self.opening}[{', '.join(calls)}]{self.closing}"


class Nemotron(Listed):
    """Nemotron Nano 2; its successors speak Qwen 3 Coder's."""

    name = "nemotron"
    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    signs = (opening,)
    openings = ((opening, closed_by(closing)),)


class Jamba(Listed):
    """Apriel and MiniMax M1 as well."""

    name = "jamba"
    opening, closing = "<tool_calls>", "</tool_calls>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    signs: ClassVar[tuple[str, ...]] = (opening,)
    openings = ((opening, closed_by(closing)),)
