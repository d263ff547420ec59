"""Helpers for tests of responses: requests, checks against the SDK's types, parsed streams."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine
from tests.ingress.protocols import responses
from tests.openai.serving import http, served
from tests.text.cards import CHAT_TEMPLATE, card

RESPONSES = responses.PATH
HELLO: dict[str, Any] = {"input": "Hello"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "K\u00f6ln"}}\n</tool_call>'
ROOMY = responses.RESPONSES.card
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
answered, whole = responses.RESPONSES.answer, responses.RESPONSES.whole
streamed, events_of = responses.RESPONSES.streamed, responses.RESPONSES.events_of
Ask = Callable[..., Awaitable[httpx.Response]]


@asynccontextmanager
async def talking(script: Any, *cards: ModelCard) -> AsyncIterator[tuple[Ask, ScriptedEngine]]:
    """Several requests, one after the other, to one application."""
    engine = ScriptedEngine(script, *(cards or (ROOMY,)))
    async with http(served(engine)) as client:

        async def ask(body: object, path: str = RESPONSES) -> httpx.Response:
            return await client.post(path, json=body)

        yield ask, engine
    assert engine.running == 0


def asked(body: dict[str, Any], *cards: ModelCard) -> GenerationRequest:
    """The request that the engine gets."""
    [request] = responses.RESPONSES.asked(*cards, **body)
    return request


def prompt_of(request: GenerationRequest, model: ModelCard | None = None) -> str:
    tokenizer = TextTokenizer(model or card())
    return tokenizer.decode(request.prompt_ids, skip_special_tokens=False)
