"""Applications under an operator's settings, and one request to them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx
from starlette.types import ASGIApp

from deployments.anthropic.routes import app as anthropic_app
from deployments.contract.events import TokenEvent
from deployments.contract.model_card import ModelCard
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
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import Script, ScriptedEngine, pools, says
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
APPLICATIONS: dict[str, Callable[..., ASGIApp]] = {
    "openai": app,
    "anthropic": anthropic_app,
    "llama": llama_app,
}
OVERLOADED = {"openai": 429, "anthropic": 529, "llama": 503}  # the status of each


def protocol_of(path: str) -> str:
    """The name of the application to which a server leads the path."""
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "openai" if path.startswith("/v1/") else "llama"


def application(path: str, engine: ScriptedEngine, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return APPLICATIONS[protocol_of(path)](engine, Metrics(), settings)


def served(script: Script | None = None, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return app(ScriptedEngine(script or says("Hello there")), Metrics(), settings)


def every(settings: IngressSettings = DEFAULTS) -> dict[str, ASGIApp]:
    """One application a protocol. Its model does all that any model can."""
    engine = CountingCluster(says_or_pools("Hello there"), card(answers=ALL_KINDS))
    return {name: make(engine, Metrics(), settings) for name, make in APPLICATIONS.items()}


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


class Asked:
    """One answer, and what the engine was asked for it, in the order of its choices."""

    def __init__(self, response: httpx.Response, requests: list[GenerationRequest]) -> None:
        self.response = response
        self.requests = sorted(requests, key=_choice_of)

    @property
    def json(self) -> Any:
        assert self.response.status_code == 200, self.response.text
        return self.response.json()

    def refusal(self, status: int = 400) -> Any:
        assert self.response.status_code == status, self.response.text
        assert self.requests == []
        return self.response.json()["error"]


def _choice_of(request: GenerationRequest) -> int:
    return int(request.request_id.rpartition("-")[2])


def asked(
    path: str,
    body: object,
    *cards: ModelCard,
    script: Script,
    settings: IngressSettings = DEFAULTS,
    headers: Mapping[str, str] | None = None,
) -> Asked:
    """One request to an engine of its own, which is idle again in the end."""

    async def send() -> Asked:
        engine = CountingCluster(script, *cards)
        async with http(application(path, engine, settings)) as client:
            response = await client.post(path, json=body, headers=headers)
        assert engine.running == 0
        return Asked(response, engine.requests)

    return asyncio.run(send())
