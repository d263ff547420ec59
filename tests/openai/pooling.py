"""Models that answer with vectors, and requests to them in any protocol's application."""

import asyncio
import base64
import struct
from collections.abc import Sequence
from typing import Any

import httpx

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Activation, AnswerKinds, ModelTask, Pooling, PoolParams
from deployments.contract.requests import GenerationRequest
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.openai.routes import app as openai_app
from serve_app.applications.llama import app as llama_app
from tests.ingress.engines import Script, pools
from tests.llama.serving import CountingCluster
from tests.openai.serving import http
from tests.text.cards import card

SIZE = 4
EMBEDS = AnswerKinds(
    task=ModelTask.EMBED,
    can_generate=False,
    can_embed=True,
    pooling=Pooling.MEAN,
    embedding_size=SIZE,
    normalizes=True,
    prompts=(("query", "Hello "), ("passage", "how ")),
    max_input_tokens=32,
)
GENERATES = AnswerKinds(can_embed=True, embedding_size=SIZE)
SCORES = AnswerKinds(
    task=ModelTask.SCORE,
    can_generate=False,
    can_embed=True,  # by its body, which has a head of its own
    takes_pairs=True,
    labels=("relevant",),
    activation=Activation.SIGMOID,
    max_input_tokens=64,
)
CLASSIFIES = AnswerKinds(
    task=ModelTask.CLASSIFY,
    can_generate=False,
    labels=("bad", "fair", "good"),
    activation=Activation.SOFTMAX,
)


def known(answers: AnswerKinds, name: str = "tiny") -> ModelCard:
    return card(name=name, answers=answers)


def numbers_of(request: GenerationRequest) -> list[float]:
    """Four numbers that depend on all ids, none of which is a float32's short decimal."""
    ids = request.prompt_ids
    weighted = sum(index * token_id for index, token_id in enumerate(ids, start=1))
    return [len(ids) / 3, ids[0] / 7, ids[-1] / 11, weighted / 13]


def vectors_of(request: GenerationRequest) -> list[list[float]]:
    params = request.output
    assert isinstance(params, PoolParams)
    assert request.max_tokens == 0
    if params.pooling is Pooling.TOKEN:
        return [[token_id / 3, 1, 2, 3] for token_id in request.prompt_ids]
    return [numbers_of(request)[: params.dimensions]]


def float32(values: Sequence[float]) -> list[float]:
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def decoded(text: str) -> list[float]:
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


class Asked:
    """One answer, and what the engine was asked for it."""

    def __init__(self, response: httpx.Response, requests: list[GenerationRequest]) -> None:
        self.response = response
        self.requests = requests

    @property
    def json(self) -> Any:
        assert self.response.status_code == 200, self.response.text
        return self.response.json()

    def refusal(self, status: int = 400) -> Any:
        assert self.response.status_code == status, self.response.text
        assert self.requests == []
        return self.response.json()["error"]


def asked(
    path: str,
    body: object,
    model: ModelCard,
    script: Script | None = None,
    settings: IngressSettings = DEFAULTS,
) -> Asked:
    """Paths under /v1 are the OpenAI application's, others are the root's."""

    async def ask() -> Asked:
        cluster = CountingCluster(script or pools(vectors_of), model)
        application = openai_app if path.startswith("/v1/") else llama_app
        async with http(application(cluster, Metrics(), settings)) as client:
            response = await client.post(path, json=body)
        assert cluster.running == 0
        requests = sorted(cluster.requests, key=lambda one: int(one.request_id.rpartition("-")[2]))
        return Asked(response, requests)

    return asyncio.run(ask())
