"""Counts of tokens equal the prompt of a generation, and generate nothing."""

from typing import Any

import httpx
from anthropic.types import MessageTokensCount
from openai.types.responses import InputTokenCountResponse
from pydantic import TypeAdapter

from deployments.contract.model_card import ModelCard
from tests.ingress.edge import Asked, asked
from tests.ingress.engines import says
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.every import EACH_CALLER
from tests.ingress.protocols.messages import MESSAGES
from tests.ingress.protocols.protocol import Caller
from tests.ingress.protocols.replies import SCHEMA, tools
from tests.ingress.protocols.responses import RESPONSES
from tests.text.cards import card

TYPES: dict[Caller, Any] = {
    CHATS: InputTokenCountResponse,
    RESPONSES: InputTokenCountResponse,
    MESSAGES: MessageTokensCount,
}
TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
TURNS += TURNS[:1]
OWN: dict[Caller, list[dict[str, Any]]] = {
    CHATS: [{"messages": TURNS}, {"stream": True, "n": 2, "max_tokens": 3}],
    RESPONSES: [
        {"input": TURNS},
        {"instructions": "Be brief.", "stream": True, "max_output_tokens": 3},
        {"text": {"format": {"type": "json_object"}}},
    ],
    MESSAGES: [{"messages": TURNS}, {"system": "Be brief."}],
}


def counting(protocol: Caller, *cards: ModelCard, **fields: Any) -> Asked:
    body = {**protocol.hello, **fields}
    if protocol is MESSAGES:
        body.pop("max_tokens", None)  # which no request for a count has
    return asked(protocol.count_path, body, *(cards or (protocol.card,)), script=says("x"))


def counted(protocol: Caller, found: Asked) -> int:
    response: httpx.Response = found.response
    assert response.status_code == 200, response.text
    assert found.requests == []
    TypeAdapter(TYPES[protocol]).validate_json(response.text, strict=True)
    return int(response.json()["input_tokens"])


@EACH_CALLER
def test_a_count_is_that_of_the_prompt(protocol: Caller) -> None:
    with_tools = tools(protocol)
    required = {**with_tools, **protocol.choice("required")}
    bodies = [{}, *OWN[protocol], protocol.form(SCHEMA), required, with_tools]
    prompts = [len(protocol.asked(**fields)[0].prompt_ids) for fields in bodies]
    assert [counted(protocol, counting(protocol, **fields)) for fields in bodies] == prompts
    assert prompts[-1] > prompts[0]


@EACH_CALLER
def test_what_does_not_fit_is_counted_too(protocol: Caller) -> None:
    turn = {"role": "user", "content": "a " * 500}
    fields = {"input" if protocol is RESPONSES else "messages": [turn]}
    small = card(context_length=64)
    assert protocol.answer(says("x"), small, **fields).status_code == 400
    assert counted(protocol, counting(protocol, small, **fields)) > 64


@EACH_CALLER
def test_what_a_generation_refuses_is_not_counted(protocol: Caller) -> None:
    for fields, status in (
        ({"temperature": 5}, 400),
        ({"tools": 5}, 400),
        ({"model": "other"}, 404),
    ):
        counting(protocol, **fields).refusal(status)


def test_a_chat_and_a_response_that_say_the_same_are_as_long() -> None:
    assert counted(CHATS, counting(CHATS)) == counted(RESPONSES, counting(RESPONSES))
