"""Applications under an operator's settings, and one request to them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.types import ASGIApp

from deployments.anthropic.routes import app as anthropic_app
from deployments.contract.events import TokenEvent
from deployments.contract.outputs import (
    Activation,
    AnswerKinds,
    LabelParams,
    ModelTask,
    Pooling,
    PoolParams,
)
from deployments.contract.requests import GenerationRequest
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.openai.routes import app
from serve_app.applications.llama import app as llama_app
from tests.ingress.engines import Script, ScriptedEngine, pools, says
from tests.llama.serving import CountingCluster
from tests.openai.serving import http
from tests.text.cards import card

ALL_KINDS = AnswerKinds(
    task=ModelTask.EMBED,
    can_embed=True,
    pooling=Pooling.MEAN,
    embedding_size=4,
    prompts=(("query", "x "),),
    labels=("good", "bad"),
    activation=Activation.SOFTMAX,
)


def served(script: Script | None = None, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return app(ScriptedEngine(script or says("Hello there")), Metrics(), settings)


def every(settings: IngressSettings = DEFAULTS) -> dict[str, ASGIApp]:
    """One application a protocol. Its model does all that any model can."""
    engine = CountingCluster(says_or_pools("Hello there"), card(answers=ALL_KINDS))
    return {
        "openai": app(engine, Metrics(), settings),
        "anthropic": anthropic_app(engine, Metrics(), settings),
        "llama": llama_app(engine, Metrics(), settings),
    }


def says_or_pools(text: str) -> Script:
    speak, pool = says(text), pools(zeros)

    def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        return speak(request) if request.output is None else pool(request)

    return script


def zeros(request: GenerationRequest) -> list[list[float]]:
    match request.output:
        case LabelParams(token_ids=labels):
            return [[-1.0] * len(labels)]
        case PoolParams(use_head=False) as params:
            n = len(request.prompt_ids) if params.pooling is Pooling.TOKEN else 1
            return [[0.0] * (params.dimensions or ALL_KINDS.embedding_size)] * n
    return [[0.0] * len(ALL_KINDS.labels)]


def ask(served_app: ASGIApp, method: str, path: str, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with http(served_app) as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())
