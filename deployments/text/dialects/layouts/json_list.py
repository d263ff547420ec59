"""The layout of families whose calls are a JSON list after a mark, mostly before another mark."""

from collections.abc import Sequence
from typing import ClassVar

from deployments.text.dialects.call_grammar import call_rules, call_sequence, json_call_body
from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.tool import Tool


class JsonList(MarkedBlocks):
    closing: ClassVar[str] = ""

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        listed = call_sequence("call", '", "', parallel)
        closing = mark(self.closing) if self.closing else ""
        return call_rules(f'"[" {listed} "]" {closing}', tools, json_call_body())

    def as_text(self, calls: Sequence[str]) -> str:
        return f"{self.opening}[{', '.join(calls)}]{self.closing}"
