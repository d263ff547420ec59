"""The Anthropic application over a scripted engine, asked through ASGI without a socket."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
from anthropic import AsyncAnthropic
from starlette.types import ASGIApp

from deployments.anthropic.routes import app
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from tests.ingress import edge
from tests.ingress.engines import ScriptedEngine
from tests.ingress.protocols import messages
from tests.ingress.protocols.messages import thinker

MESSAGES = messages.PATH
HELLO = dict(messages.MESSAGES.hello)
whole, streamed = messages.MESSAGES.whole, messages.MESSAGES.streamed
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


def served(
    engine: ScriptedEngine, *, keep_alive_s: float = 15.0, api_keys: tuple[str, ...] = ()
) -> ASGIApp:
    settings = IngressSettings(keep_alive_s=keep_alive_s, api_keys=api_keys)
    return app(engine, Metrics(), settings)


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
    model = model or thinker()
    return edge.asked(path, body, model, script=script, headers=headers).response


def asked(body: Mapping[str, Any], model: ModelCard | None = None) -> GenerationRequest:
    """The request that the engine gets."""
    [request] = messages.MESSAGES.asked(model or thinker(), **body)
    return request
