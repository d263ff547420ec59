"""Phi 4 mini: a list of JSON objects behind a word or between marks."""

from deployments.text.dialects.layouts.json_list import Listed
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.incremental import NoCall, Steps
from deployments.text.dialects.parsing.json_calls import closed_by, json_calls
from deployments.text.dialects.parsing.reading import Reading

WORD = "functools"
CALLS, CALLS_END = "<|tool_call|>", "<|/tool_call|>"


def listed_calls(reading: Reading) -> Steps[None]:
    if (yield from reading.source.peek()) != "[":
        raise NoCall
    yield from json_calls(reading)


class Phi4(Listed):
    name = "phi4"
    thought_marks = THINK
    marks = (CALLS, CALLS_END, *THINK)
    signs = ("<|/tool|>",)
    openings = ((WORD, listed_calls), (CALLS, closed_by(CALLS_END)))
    opening, closing = CALLS, CALLS_END

    def call_openings(self) -> tuple[str, ...]:
        return f"{WORD}[", CALLS
