"""Mistral: a list of JSON objects after a mark, or since v11 each call after its own mark."""

import hashlib
import secrets
import string
from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    call_rules,
    call_sequence,
    headed_call_body,
    json_call_body,
    literal,
)
from deployments.text.dialects.dialect import WriteMark
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.parsing.incremental import Incremental
from deployments.text.dialects.parsing.json_calls import read_json_calls, read_named_call
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.tool import Tool

CALLS, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
ALPHABET = string.ascii_letters + string.digits
MAX_ID = 64
ID_LENGTH = 9  # which its templates insist on


def tool_calls(reader: ReplyReader) -> Incremental[None]:
    buffer = reader.buffer
    yield from buffer.skip_space()
    if (yield from buffer.peek()) in ("[", "{"):
        return (yield from read_json_calls(reader))
    name, call_id = (yield from reader.read_name()), ""
    if (yield from buffer.try_read(CALL_ID, ARGUMENTS)) == CALL_ID:
        call_id, _ = yield from buffer.read_up_to(MAX_ID, ARGUMENTS)
    yield from read_named_call(reader, name, call_id.strip() or None)


class Mistral(MarkedBlocks):
    name = "mistral"
    thought_marks = ("[THINK]", "[/THINK]")
    marks = (CALLS, ARGUMENTS, CALL_ID, *thought_marks)
    template_signs = (CALLS, thought_marks[0])
    openings = ((CALLS, tool_calls),)
    opening = CALLS

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        if mark(ARGUMENTS).startswith('"'):  # an older tokenizer, and the list of its time
            listed = call_sequence("call", '", "', parallel)
            return call_rules(f'"[" {listed} "]"', tools, json_call_body())

        body = headed_call_body(lambda name: f"{literal(name)} {mark(ARGUMENTS)}")
        return call_rules(call_sequence("call", mark(CALLS), parallel), tools, body)

    def call_id(self, index: int, name: str) -> str:
        return "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))

    def template_id(self, call_id: str, name: str, index: int) -> str:
        if len(call_id) == ID_LENGTH and set(call_id) <= set(ALPHABET):
            return call_id
        digest = hashlib.sha256(call_id.encode()).digest()
        return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:ID_LENGTH])
