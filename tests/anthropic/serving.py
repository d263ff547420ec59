"""The Anthropic application over a scripted engine, asked through ASGI without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import httpx2
from anthropic import AsyncAnthropic
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from starlette.types import ASGIApp

from deployments.anthropic.routes import app
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from tests.ingress.engines import ScriptedEngine, says
from tests.text.cards import card

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER: dict[str, Any] = {"role": "user", "content": "Hello"}
HELLO: dict[str, Any] = {"model": "tiny", "max_tokens": 400, "messages": [USER]}
WEATHER = {
    "name": "weather",
    "description": "Of a city.",
    "input_schema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
# A model that thinks and calls as Hermes does, and shows in its prompt all that it was given.
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | map(attribute='function') | map(attribute='name') | join }}"
    "{{ tools | map(attribute='function') | map(attribute='description') | join }}</tools>"
    "{% endif %}"
    "{% if reasoning_effort %}<effort>{{ reasoning_effort }}</effort>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.name }}{{ c.function.arguments | tojson }}#{{ c.id }}</tool_call>"
    "{% endfor %}"
    "{% if m.role == 'tool' %}[{{ m.name }}#{{ m.tool_call_id }}]{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% if enable_thinking %}<think>\n{% endif %}"
    "{% endif %}"
)
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
MESSAGE = TypeAdapter(Message)


def thinker(context_length: int = 2048) -> ModelCard:
    return replace(card(context_length=context_length), chat_template=TEMPLATE, dialect="hermes")


def served(
    engine: ScriptedEngine, *, keep_alive_s: float = 15.0, api_keys: tuple[str, ...] = ()
) -> ASGIApp:
    settings = IngressSettings(keep_alive_s=keep_alive_s, api_keys=api_keys)
    return app(engine, Metrics(), settings)


@asynccontextmanager
async def http(served_app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(served_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://manta") as client:
        yield client


@asynccontextmanager
async def sdk(served_app: ASGIApp, api_key: str = "none") -> AsyncIterator[AsyncAnthropic]:
    transport = httpx2.ASGITransport(served_app)
    async with httpx2.AsyncClient(transport=transport) as inner:
        yield AsyncAnthropic(
            api_key=api_key, base_url="http://manta", http_client=inner, max_retries=0
        )


def answer(
    script: Any,
    body: object,
    path: str = MESSAGES,
    model: ModelCard | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """One request to an engine of its own."""

    async def ask() -> httpx.Response:
        engine = ScriptedEngine(script, model or thinker())
        async with http(served(engine)) as client:
            response = await client.post(path, json=body, headers=headers)
        assert engine.running == 0
        return response

    return asyncio.run(ask())


def whole(script: Any, **fields: object) -> Any:
    response = answer(script, {**HELLO, **fields})
    assert response.status_code == 200, response.text
    MESSAGE.validate_json(response.text, strict=True)
    return response.json()


def streamed(script: Any, **fields: object) -> list[Any]:
    """The events but for pings, each checked against the SDK's types."""
    response = answer(script, {**HELLO, **fields, "stream": True})
    assert response.status_code == 200, response.text
    events = [event for event in events_of(response) if event["type"] != "ping"]
    for event in events:
        EVENT.validate_json(json.dumps(event), strict=True)
    return events


def events_of(response: httpx.Response) -> list[Any]:
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, rest = response.text.split("\n\n")
    assert rest == ""
    events = []
    for frame in frames:
        name, _, datum = frame.partition("\n")
        event = json.loads(datum.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def asked(body: Mapping[str, object], model: ModelCard | None = None) -> GenerationRequest:
    """The requests that the engine gets."""

    async def ask() -> GenerationRequest:
        engine = ScriptedEngine(says("x"), model or thinker())
        async with http(served(engine)) as client:
            response = await client.post(MESSAGES, json={**HELLO, **body})
        assert response.status_code == 200, response.text
        [request] = engine.requests
        return request

    return asyncio.run(ask())
