"""Cohere's Command R7B and A: thoughts and a JSON list of actions, each between marks."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import call_rules, call_sequence, json_call_body
from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.parsing.json_calls import read_json_calls_through
from deployments.text.tool import Tool

ACTION, ACTION_END = "<|START_ACTION|>", "<|END_ACTION|>"


class Command(MarkedBlocks):
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
