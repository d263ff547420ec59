"""Families whose calls are a JSON list between two marks, each with marks of its own."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark, Tool
from deployments.text.dialects.family import THINK, Family, Form
from deployments.text.dialects.grammars import calls_lark, json_call, several
from deployments.text.dialects.json_calls import json_calls
from deployments.text.dialects.machine import Steps
from deployments.text.dialects.reading import Reading


def closed_by(closing: str) -> Form:
    def read(reading: Reading) -> Steps[None]:
        yield from json_calls(reading)
        yield from reading.source.close(closing)

    return read


class Nemotron(Family):
    """Nemotron Nano 2; its successors speak Qwen 3 Coder's."""

    name = "nemotron"
    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    signs = (opening,)
    openings = ((opening, closed_by(closing)),)

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        listed = several("call", '", "', parallel)
        return calls_lark(f'"[" {listed} "]" {mark(self.closing)}', tools, json_call())


class Jamba(Nemotron):
    """Apriel as well."""

    name = "jamba"
    opening, closing = "<tool_calls>", "</tool_calls>"
    marks = (opening, closing, *THINK)
    signs = (opening,)
    openings = ((opening, closed_by(closing)),)
