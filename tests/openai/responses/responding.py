"""Helpers for tests of responses: requests, checks against the SDK's types, parsed streams."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine
from tests.openai.serving import http, served
from tests.text.cards import CHAT_TEMPLATE, card

RESPONSES = "/v1/responses"
HELLO: dict[str, Any] = {"input": "Hello"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "K\u00f6ln"}}\n</tool_call>'
RESPONSE = TypeAdapter(Response)
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
RANDOM = re.compile(r'"(resp|msg|rs|fc|fco|call)_[0-9a-zA-Z]+"')

ROOMY = card(context_length=8192)
# A template that shows thoughts, of a model which has them.
THINKER = replace(
    card(name="thinker", context_length=8192),
    dialect="hermes",
    chat_template="{% set think = enable_thinking is not defined or enable_thinking %}"
    + CHAT_TEMPLATE.replace(
        "{{ m.content }}",
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content }}",
    )
    + "{% if not think %}<think></think>{% endif %}"
    "{% if reasoning_effort %}{{ reasoning_effort }}{% endif %}",
)


Ask = Callable[..., Awaitable[httpx.Response]]


def talk(script: Any, *cards: ModelCard, asks: Callable[[Ask, ScriptedEngine], Any]) -> Any:
    """Several requests, one after the other, to one application."""

    async def run() -> Any:
        engine = ScriptedEngine(script, *(cards or (ROOMY,)))
        async with http(served(engine)) as client:

            async def ask(body: object, path: str = RESPONSES) -> httpx.Response:
                return await client.post(path, json=body)

            outcome = await asks(ask, engine)
        assert engine.running == 0
        return outcome

    return asyncio.run(run())


def answered(script: Any, *cards: ModelCard, **fields: object) -> httpx.Response:
    async def asks(ask: Ask, engine: ScriptedEngine) -> httpx.Response:
        return await ask({**HELLO, **fields})

    response: httpx.Response = talk(script, *cards, asks=asks)
    return response


def whole(script: Any, *cards: ModelCard, **fields: object) -> Any:
    response = answered(script, *cards, **fields)
    assert response.status_code == 200, response.text
    RESPONSE.validate_json(response.text, strict=True)
    return response.json()


def streamed(script: Any, *cards: ModelCard, **fields: object) -> list[Any]:
    response = answered(script, *cards, **fields, stream=True)
    assert response.status_code == 200, response.text
    return events_of(response)


def events_of(response: httpx.Response) -> list[Any]:
    """The events, each strictly what the SDK says it is, named and numbered."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, rest = response.text.split("\n\n")
    assert rest == ""
    events = []
    for number, frame in enumerate(frames):
        name, datum = frame.split("\n")
        event = json.loads(datum.removeprefix("data: "))
        EVENT.validate_python(event, strict=True)
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def asked(body: object, *cards: ModelCard, script: Any) -> GenerationRequest:
    """The requests that the engine gets."""

    async def asks(ask: Ask, engine: ScriptedEngine) -> GenerationRequest:
        response = await ask(body)
        assert response.status_code == 200, response.text
        return engine.requests[0]

    request: GenerationRequest = talk(script, *cards, asks=asks)
    return request


def prompt_of(request: GenerationRequest, model: ModelCard | None = None) -> str:
    tokenizer = TextTokenizer(model or card())
    return tokenizer.decode(request.prompt_ids, skip_special_tokens=False)


def anonymous(body: Any) -> Any:
    """The same without what differs between two answers to one request."""
    named = json.loads(RANDOM.sub(r'"\1"', json.dumps(body)))
    ended = named["completed_at"] and 1
    return {**named, "created_at": 0, "completed_at": ended}
