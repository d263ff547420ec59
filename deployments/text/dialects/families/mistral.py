"""Mistral: a list of JSON objects behind a mark, or since v11 each call behind its own."""

import hashlib
import secrets
import string
from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    calls_lark,
    headed_call,
    json_call,
    literal,
    several,
)
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import Family
from deployments.text.dialects.parsing.incremental import Steps
from deployments.text.dialects.parsing.json_calls import json_calls, named_call
from deployments.text.dialects.parsing.reading import Reading
from deployments.text.tool import Tool

CALLS, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
ALPHABET = string.ascii_letters + string.digits
MAX_ID = 64
ID_LENGTH = 9  # which its templates insist on


def tool_calls(reading: Reading) -> Steps[None]:
    source = reading.source
    yield from source.space()
    if (yield from source.peek()) in ("[", "{"):
        return (yield from json_calls(reading))
    name, call_id = (yield from reading.name_here()), ""
    if (yield from source.one_of(CALL_ID, ARGUMENTS)) == CALL_ID:
        call_id, _ = yield from source.upto(MAX_ID, ARGUMENTS)
    yield from named_call(reading, name, call_id.strip() or None)


class Mistral(Family):
    name = "mistral"
    thought_marks = ("[THINK]", "[/THINK]")
    marks = (CALLS, ARGUMENTS, CALL_ID, *thought_marks)
    signs = (CALLS, thought_marks[0])
    openings = ((CALLS, tool_calls),)
    opening = CALLS

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        if mark(ARGUMENTS).startswith('"'):  # an older tokenizer, and the list of its time
            listed = several("call", '", "', parallel)
            return calls_lark(f'"[" {listed} "]"', tools, json_call())

        body = headed_call(lambda name: f"{literal(name)} {mark(ARGUMENTS)}")
        return calls_lark(several("call", mark(CALLS), parallel), tools, body)

    def call_id(self, index: int, name: str) -> str:
        return "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))

    def template_id(self, call_id: str, name: str, index: int) -> str:
        if len(call_id) == ID_LENGTH and set(call_id) <= set(ALPHABET):
            return call_id
        digest = hashlib.sha256(call_id.encode()).digest()
        return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:ID_LENGTH])
