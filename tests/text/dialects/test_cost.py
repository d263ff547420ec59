"""The cost of a reply grows with its length, and no more of it is held back than may be needed."""

import sys
from collections.abc import Sequence
from types import FrameType

import pytest

from deployments.text.dialects.dialect import ReplyContext
from deployments.text.dialects.parsing.pieces import CallStart, ReplyParser
from deployments.text.dialects.registry import DIALECTS
from tests.effort import tries
from tests.text.dialects.transcripts import TOOLS

LONG = tries(6_000, 30_000)
MAX_HELD_BACK = 64  # characters; no mark is longer

# Texts that a parser could lose itself in, made of as many characters as asked for.
REPEATED = {
    "letters": "words of text ",
    "newlines": "\n",
    "spaces": " ",
    "openings": "<tool_call>",
    "openings and newlines": "\n\n<tool_call>\n",
    "half an opening": "<tool_cal",
    "objects": '<tool_call>{"arguments": {"a": ',
    "names": '<tool_call>{"name": "get_wea',
    "lists": '<tool_call>[{"name": ',
    "strings": '<tool_call>{"type": "',
    "functions": "<tool_call><function=get_weather",
    "keys": "<arg_key>",
    "thoughts": "<think>",
    "headers": "<|channel|>commentary to=functions.ping ",
    "messages": "<|start|>assistant<|channel|>analysis<|message|>a",
    "sections": "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping",
    "brackets": "[ping(",
    "mistral": "[TOOL_CALLS]ping[CALL_ID]",
}


def calls_made(parser: ReplyParser, cuts: Sequence[str]) -> int:
    """How many Python functions run while a text is heard."""
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        for cut in cuts:
            parser.push(cut)
        parser.finish()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("single", [True, False], ids=["character by character", "at once"])
def test_twice_the_text_costs_twice_as_much(name: str, single: bool) -> None:
    context = ReplyContext(tools=TOOLS)
    for label, part in REPEATED.items():
        costs = []
        for length in tries((300, 600), (600, 1_200)):
            text = (part * length)[:length]
            parser = DIALECTS[name].parser(context)
            costs.append(calls_made(parser, list(text) if single else [text]))
        assert costs[1] < 2.2 * costs[0] + 200, label


@pytest.mark.parametrize("name", DIALECTS)
def test_of_long_text_only_what_may_be_a_mark_is_held_back(name: str) -> None:
    parser, out = DIALECTS[name].parser(ReplyContext(tools=TOOLS)), 0
    for at in range(LONG):
        out += said(parser, "a < b "[at % 6])
        assert at + 1 - out <= MAX_HELD_BACK


def said(parser: ReplyParser, text: str) -> int:
    return sum(len(piece.text) for piece in parser.push(text) if not isinstance(piece, CallStart))


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm", "gemma", "pythonic", "mistral"])
def test_of_long_arguments_little_is_held_back(name: str) -> None:
    heads = {
        "hermes": '<tool_call>{"name": "search", "arguments": {"query": "',
        "qwen3_coder": "<tool_call><function=search><parameter=query>",
        "glm": "<tool_call>search\n<arg_key>query</arg_key><arg_value>",
        "gemma": "<start_function_call>call:search{query:<escape>",
        "pythonic": "[search(query='",
        "mistral": '[TOOL_CALLS]search[ARGS]{"query": "',
    }
    parser = DIALECTS[name].parser(ReplyContext(tools=TOOLS))
    parser.push(heads[name])
    out = 0
    for at in range(LONG):
        out += said(parser, "a < b "[at % 6])
        assert at + 1 - out <= MAX_HELD_BACK
