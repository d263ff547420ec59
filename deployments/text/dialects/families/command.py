"""Cohere's Command R7B and A: thoughts and a JSON list of actions, each between marks."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import calls_lark, json_call, several
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import Family
from deployments.text.dialects.parsing.json_calls import closed_by
from deployments.text.tool import Tool

ACTION, ACTION_END = "<|START_ACTION|>", "<|END_ACTION|>"


class Command(Family):
    name = "command"
    thought_marks = ("<|START_THINKING|>", "<|END_THINKING|>")
    marks = (ACTION, ACTION_END, *thought_marks)
    signs = (ACTION,)
    openings = ((ACTION, closed_by(ACTION_END)),)
    opening = ACTION
    frame = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        listed = several("call", r'",\n"', parallel)
        body = json_call("parameters", name="tool_name")
        return calls_lark(rf'"[\n" {listed} "\n]" {mark(ACTION_END)}', tools, body)
