"""Phi 4 mini: a list of JSON objects behind a word or between marks."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark, Tool
from deployments.text.dialects.family import THINK, Family
from deployments.text.dialects.grammars import calls_lark, json_call, several
from deployments.text.dialects.json_calls import json_calls
from deployments.text.dialects.machine import NoCall, Steps
from deployments.text.dialects.reading import Reading

WORD = "functools"
CALLS, CALLS_END = "<|tool_call|>", "<|/tool_call|>"


def listed_calls(reading: Reading) -> Steps[None]:
    if (yield from reading.source.peek()) != "[":
        raise NoCall
    yield from json_calls(reading)


def marked_list(reading: Reading) -> Steps[None]:
    yield from json_calls(reading)
    yield from reading.source.close(CALLS_END)


class Phi4(Family):
    name = "phi4"
    thought_marks = THINK
    marks = (CALLS, CALLS_END, *THINK)
    signs = ("<|/tool|>",)
    openings = ((WORD, listed_calls), (CALLS, marked_list))
    opening = CALLS

    def call_openings(self) -> tuple[str, ...]:
        return f"{WORD}[", CALLS

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        listed = several("call", '", "', parallel)
        return calls_lark(f'"[" {listed} "]" {mark(CALLS_END)}', tools, json_call())
