"""Phi 4 mini: a list of JSON objects after a word or between marks."""

from deployments.text.dialects.layouts.json_list import JsonList
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.incremental import Incremental, NotACall
from deployments.text.dialects.parsing.json_calls import read_json_calls, read_json_calls_through
from deployments.text.dialects.parsing.reading import ReplyReader

WORD = "functools"
CALLS, CALLS_END = "<|tool_call|>", "<|/tool_call|>"


def listed_calls(reader: ReplyReader) -> Incremental[None]:
    if (yield from reader.buffer.peek()) != "[":
        raise NotACall
    yield from read_json_calls(reader)


class Phi4(JsonList):
    name = "phi4"
    thought_marks = THINK
    marks = (CALLS, CALLS_END, *THINK)
    template_signs = ("<|/tool|>",)
    openings = ((WORD, listed_calls), (CALLS, read_json_calls_through(CALLS_END)))
    opening, closing = CALLS, CALLS_END

    def call_openings(self) -> tuple[str, ...]:
        return f"{WORD}[", CALLS
