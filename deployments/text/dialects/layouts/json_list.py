"""Families whose calls are a JSON list behind a mark, most of them before another."""

from collections.abc import Sequence
from typing import ClassVar

from deployments.text.dialects.call_grammar import calls_lark, json_call, several
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import Family
from deployments.text.tool import Tool


class Listed(Family):
    closing: ClassVar[str] = ""

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        listed = several("call", '", "', parallel)
        closing = mark(self.closing) if self.closing else ""
        return calls_lark(f'"[" {listed} "]" {closing}', tools, json_call())

    def as_text(self, calls: Sequence[str]) -> str:
        return f"{self.opening}[{', '.join(calls)}]{self.closing}"
