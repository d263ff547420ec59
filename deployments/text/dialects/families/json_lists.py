"""Families whose calls are a list of JSON objects behind a mark, mostly before another mark."""

import json
from collections.abc import Sequence
from typing import ClassVar

from deployments.text.dialects.call_grammar import call_rules, call_sequence, json_call_body
from deployments.text.dialects.dialect import Opening, WriteMark
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.parsing.incremental import Incremental, NotACall
from deployments.text.dialects.parsing.json_calls import read_json_calls, read_json_calls_through
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.tool import Tool

CALLS, CALLS_END = "<|tool_call|>", "<|/tool_call|>"  # of Granite, which has no end, and of Phi 4
ACTION, ACTION_END = "<|START_ACTION|>", "<|END_ACTION|>"
# Between which Granite's thoughts are.
SENTENCES = ("Here is my thought process:", "Here is my response:")
SHORT_SENTENCES = ("Here's my thought process:", "Here's my response:")
WORD = "functools"  # which Phi 4 may write in the place of the mark


class JsonList(MarkedBlocks):
    """The layout of most of them. `closing` is the mark behind the list, "" for none."""

    closing: ClassVar[str] = ""

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        listed = call_sequence("call", '", "', parallel)
        closing = mark(self.closing) if self.closing else ""
        return call_rules(f'"[" {listed} "]" {closing}', tools, json_call_body())

    def as_text(self, calls: Sequence[str]) -> str:
        return f"{self.opening}[{', '.join(calls)}]{self.closing}"


class Jamba(JsonList):
    """The dialect of Jamba, Apriel and MiniMax M1."""

    name = "jamba"
    opening, closing = "<tool_calls>", "</tool_calls>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    template_signs: ClassVar[tuple[str, ...]] = (opening,)
    openings = ((opening, read_json_calls_through(closing)),)


class Hunyuan(Jamba):
    """Hunyuan A13B and the dense models, which frame their answers."""

    name = "hunyuan"
    template_signs = ("<|extra_0|>", "<\uff5chy_Assistant\uff5c>")
    answer_frame = ("<answer>", "</answer>")


class Nemotron(JsonList):
    """Nemotron Nano 2. Its successors write Qwen 3 Coder's dialect."""

    name = "nemotron"
    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    thought_marks = THINK
    marks = (opening, closing, *THINK)
    template_signs = (opening,)
    openings = ((opening, read_json_calls_through(closing)),)


class Granite(JsonList):
    """Granite 3: thoughts between marks or behind sentences. Granite 4 speaks Hermes."""

    name = "granite"
    thought_marks: tuple[str, str] | None = THINK
    more_thought_marks = (SENTENCES, SHORT_SENTENCES)
    answer_frame = ("<response>", "</response>")
    marks: tuple[str, ...] = (CALLS, OPEN, CLOSE, *THINK)
    openings = ((CALLS, read_json_calls), (OPEN, read_json_calls_through(CLOSE)))
    opening = CALLS

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return "<|start_of_role|>" in template and OPEN not in template

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        listed = call_sequence("call", '", "', parallel)
        tagged = rf'tagged: /\n?/ (call | "[" {listed} "]") /\n?/ {mark(CLOSE)}'
        return f"{lark}{tagged}\n", (*openings, Opening(OPEN, "tagged"))


class Granite32(Granite):
    name = "granite_v32"
    thought_marks = SENTENCES
    more_thought_marks = (SHORT_SENTENCES, THINK)
    marks = (CALLS, OPEN, CLOSE, *SENTENCES)

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return super().matches_template(template) and SENTENCES[0] in template


def read_list(reader: ReplyReader) -> Incremental[None]:
    if (yield from reader.buffer.peek()) != "[":
        raise NotACall
    yield from read_json_calls(reader)


class Phi4(JsonList):
    """Phi 4 mini: the list is behind a word, or between marks."""

    name = "phi4"
    thought_marks = THINK
    marks = (CALLS, CALLS_END, *THINK)
    template_signs = ("<|/tool|>",)
    openings = ((WORD, read_list), (CALLS, read_json_calls_through(CALLS_END)))
    opening, closing = CALLS, CALLS_END

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        worded = f'worded: "[" {call_sequence("call", json.dumps(", "), parallel)} "]"'
        return f"{lark}{worded}\n", (*openings, Opening(f"{WORD}[", "worded", "["))


class Command(MarkedBlocks):
    """Cohere's Command R7B and A: a list of actions, on lines of its own."""

    name = "command"
    thought_marks = ("<|START_THINKING|>", "<|END_THINKING|>")
    marks = (ACTION, ACTION_END, *thought_marks)
    template_signs = (ACTION,)
    openings = ((ACTION, read_json_calls_through(ACTION_END)),)
    opening = ACTION
    answer_frame = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        listed = call_sequence("call", r'",\n"', parallel)
        body = json_call_body("parameters", name="tool_name")
        return call_rules(rf'"[\n" {listed} "\n]" {mark(ACTION_END)}', tools, body)
