"""However much is wrong with a body, one thing is told of it, and little more is looked for."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from deployments.anthropic.messages_schema import CountRequest, MessagesRequest
from deployments.ingress.http.validation import MAX_ERRORS, parse
from deployments.ingress.streams.routes import StreamLookup
from deployments.llama.completion.infill import InfillRequest
from deployments.llama.completion.schema import LlamaCompletionRequest
from deployments.llama.server.tokenize import DetokenizeRequest, TokenizeRequest
from deployments.openai.chat.schema import ChatRequest
from deployments.openai.completions.schema import CompletionRequest
from deployments.openai.responses.schema import ResponsesRequest
from deployments.wire import Refused

BODIES = [
    ChatRequest,
    CompletionRequest,
    CountRequest,
    DetokenizeRequest,
    InfillRequest,
    MessagesRequest,
    LlamaCompletionRequest,
    ResponsesRequest,
    StreamLookup,
    TokenizeRequest,
]
LIMIT = 4096
ROLES = ("system", "user", "assistant", "tool")


def lists_of(schema: object) -> Iterator[Any]:
    """Every list in what pydantic made of a body, but for those of any JSON."""
    if isinstance(schema, list | tuple):
        for inner in schema:
            yield from lists_of(inner)
    if not isinstance(schema, dict) or (schema.get("type") == "tagged-union" and "ref" in schema):
        return
    if schema.get("type") == "list":
        yield schema
    for inner in schema.values():
        yield from lists_of(inner)


@pytest.mark.parametrize("body", BODIES)
def test_every_list_is_bounded_or_is_left_at_its_first_wrong_item(body: type[BaseModel]) -> None:
    found = list(lists_of(body.__pydantic_core_schema__))
    assert found
    for one in found:
        holds_json = one["items_schema"].get("schema_ref", "").count("JsonValue")
        bounded = one.get("fail_fast") or one.get("max_length", LIMIT + 1) <= LIMIT
        assert bounded or holds_json, one


def test_a_body_with_very_many_unknown_fields_is_refused_without_a_list_of_them() -> None:
    body = {"prompt": "x", **{f"f{number}": 1 for number in range(MAX_ERRORS + 1)}}
    with pytest.raises(Refused, match=f"{MAX_ERRORS + 1} places"):
        parse(CompletionRequest, body)


WRONG: list[object] = [
    *(1, -5, 1.5, 1 << 70, "", "x", "x" * 3000, True, None),
    *([], {}, [1], ["x"], [None], [[]], [{}], [{"type": "x"}], [{"role": "x"}], [{"role": 1}]),
    *({"type": "x"}, {"type": "function"}, {"type": "json_schema"}, {"type": "enabled"}, {"a": 1}),
    *([{"role": role, "content": 1, "tool_calls": 1} for role in (name,)] for name in ROLES),
    *([{"type": "function", "function": {}}], [{"type": "text", "text": 1}], [1, "x"]),
]
JARGON = re.compile(
    r"\b(None|NoneType|True|False|dict|str|int|float|bool|tuple|instance|pydantic|Input|Unable"
    r"|[A-Z]\w+(Request|Message|Part|Item|Tool|Format|Options))\b"
)


@pytest.mark.parametrize("body", BODIES)
def test_what_is_wrong_is_told_in_the_words_of_json(body: type[BaseModel]) -> None:
    needed = {name: "x" for name, field in body.model_fields.items() if field.is_required()}
    told = set()
    for name in body.model_fields:
        for value in WRONG:
            try:
                parse(body, {**needed, name: value})
            except Refused as refusal:
                told.add(str(refusal).removeprefix(f"`{name}`"))
    assert len(told) > 5
    assert not [message for message in told if JARGON.search(message)]
