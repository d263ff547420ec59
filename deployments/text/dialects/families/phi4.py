"""Phi 4 mini: a list of JSON objects after a word or between marks."""

import json
from collections.abc import Sequence

from deployments.text.dialects.call_grammar import call_sequence
from deployments.text.dialects.dialect import Opening, WriteMark
from deployments.text.dialects.layouts.json_list import JsonList
from deployments.text.dialects.layouts.marked_blocks import THINK
from deployments.text.dialects.parsing.incremental import Incremental, NotACall
from deployments.text.dialects.parsing.json_calls import read_json_calls, read_json_calls_through
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.tool import Tool

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

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        worded = f'worded: "[" {call_sequence("call", json.dumps(", "), parallel)} "]"'
        return f"{lark}{worded}\n", (*openings, Opening(f"{WORD}[", "worded", "["))
