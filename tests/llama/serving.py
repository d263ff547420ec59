"""The root application over a scripted engine and replicas that only count, without a socket."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
from starlette.types import ASGIApp

from deployments.engine.limits import EngineLimits
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from deployments.telemetry.metric_families import MetricFamily
from serve_app.applications.llama import app
from tests.ingress.engines import Script, ScriptedEngine
from tests.openai.serving import http
from tests.text.cards import card

COMPLETION = "/completion"
STATS = {
    "active_requests": 1.0,
    "waiting_requests": 0.0,
    "total_requests": 7.0,
    "aborted_requests": 0.0,
    "tokens_generated": 40.0,
    "preemptions": 0.0,
    "pages_used": 3.0,
    "pages_total": 12.0,
}


class CountingCluster(ScriptedEngine):
    """An engine with as many replicas of every model as there are `stats`, each of two slots."""

    stats: tuple[dict[str, float], ...] = (STATS, {**STATS, "active_requests": 0.0})
    families: tuple[MetricFamily, ...] = ()
    limits = EngineLimits(max_running=2)

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        if deployment != MODEL_DEPLOYMENT:
            return []
        settings = ModelSettings(name="tiny", path="tiny", limits=self.limits)
        samples = [({"replica": str(index)}, list(self.families)) for index, _ in enumerate("ab")]
        answers: dict[str, list[object]] = {
            "stats": [(str(index), stats) for index, stats in enumerate(self.stats)],
            "settings": [settings for _ in self.stats],
            "samples": list(samples),
            "end_thoughts": [False for _ in self.stats],
        }
        return answers[method]


def served(cluster: CountingCluster, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return app(cluster, Metrics(), settings)


async def send(cluster: CountingCluster, method: str, path: str, **request: Any) -> httpx.Response:
    async with http(served(cluster)) as client:
        return await client.request(method, path, **request)


def ask(script: Script, path: str, body: Mapping[str, object]) -> httpx.Response:
    """One request to an engine of its own."""

    async def asks() -> httpx.Response:
        cluster = CountingCluster(script, card())
        response = await send(cluster, "POST", path, json=body)
        assert cluster.running == 0
        return response

    return asyncio.run(asks())


def whole(script: Script, /, **fields: object) -> Any:
    response = ask(script, COMPLETION, fields)
    assert response.status_code == 200, response.text
    return response.json()


def streamed(script: Script, /, **fields: object) -> list[Any]:
    response = ask(script, COMPLETION, {**fields, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_of(response.text)


def events_of(text: str) -> list[Any]:
    frames = text.split("\n\n")
    assert frames[-1] == ""
    assert all(frame.startswith("data: ") for frame in frames[:-1])
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


def refusal(response: httpx.Response, status: int) -> Any:
    """The error of an answer, in llama-server's form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    [(name, error)] = response.json().items()
    assert name == "error"
    assert error["code"] == status
    assert error["message"]
    assert error["type"]
    return error
