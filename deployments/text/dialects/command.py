"""Cohere's Command R7B and A: thoughts and a JSON list of actions, each between marks."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Mark, Tool
from deployments.text.dialects.family import Family
from deployments.text.dialects.grammars import calls_lark, json_call, several
from deployments.text.dialects.json_calls import json_calls
from deployments.text.dialects.machine import Steps
from deployments.text.dialects.reading import Reading

ACTION, ACTION_END = "<|START_ACTION|>", "<|END_ACTION|>"


def actions(reading: Reading) -> Steps[None]:
    yield from json_calls(reading)
    yield from reading.source.close(ACTION_END)


class Command(Family):
    """The marks around a response are not for the parser: as special tokens they make no text."""

    name = "command"
    thought_marks = ("<|START_THINKING|>", "<|END_THINKING|>")
    marks = (ACTION, ACTION_END, *thought_marks)
    signs = (ACTION,)
    openings = ((ACTION, actions),)
    opening = ACTION
    frame = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        listed = several("call", r'",\n"', parallel)
        body = json_call("parameters", name="tool_name")
        return calls_lark(rf'"[\n" {listed} "\n]" {mark(ACTION_END)}', tools, body)
