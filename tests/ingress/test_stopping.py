"""An ingress that is told to stop: what runs may end, and is else told why in its own form."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from deployments.anthropic.routes import app as anthropic_app
from deployments.contract.model_card import ModelCard
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.stopping import Stopping
from deployments.openai.routes import app as openai_app
from serve_app.applications.llama import app as llama_app
from tests.ingress.engines import ScriptedEngine, forever, says
from tests.llama.serving import CountingCluster
from tests.openai.serving import http

MESSAGES = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", MESSAGES),
    "completions": ("/v1/completions", {"prompt": "Hello"}),
    "responses": ("/v1/responses", {"input": "Hello"}),
    "anthropic": ("/v1/messages", {"model": "tiny", **MESSAGES}),
    "llama": ("/completion", {"prompt": "Hello"}),
}
APPS: dict[str, Any] = {"anthropic": anthropic_app, "llama": llama_app}


class Serving:
    """One protocol's application, and what a request to it said when the server had stopped."""

    def __init__(self, protocol: str, engine: Any) -> None:
        self.engine = engine
        self.stopping = Stopping()
        self.path, self.body = REQUESTS[protocol]
        settings = IngressSettings(stopping=self.stopping)
        self.app = APPS.get(protocol, openai_app)(engine, Metrics(), settings)

    async def until_stopped(self, seconds: float, **fields: object) -> httpx.Response:
        async with http(self.app) as client:
            asking = asyncio.create_task(client.post(self.path, json={**self.body, **fields}))
            await self.engine.starts.get()
            await self.stopping.end(seconds)
            return await asking


@pytest.mark.parametrize("protocol", REQUESTS)
def test_a_stream_that_takes_too_long_ends_with_an_error(protocol: str) -> None:
    async def scenario() -> str:
        serving = Serving(protocol, CountingCluster(forever()))
        answer = await serving.until_stopped(0.0, stream=True)
        assert answer.status_code == 200
        assert serving.engine.running == 0
        return answer.text

    text = asyncio.run(scenario())
    data = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    last = json.loads(data[-1])
    error = last.get("error") or last["response"]["error"]
    assert "stopped before" in error["message"]


@pytest.mark.parametrize("protocol", REQUESTS)
def test_a_unary_answer_that_takes_too_long_is_refused(protocol: str) -> None:
    async def scenario() -> httpx.Response:
        return await Serving(protocol, CountingCluster(forever())).until_stopped(0.0)

    answer = asyncio.run(scenario())
    assert answer.status_code in (503, 529)
    assert answer.headers["retry-after"]
    assert "stopped before" in answer.json()["error"]["message"]


def test_an_answer_that_ends_in_time_is_whole() -> None:
    async def scenario() -> httpx.Response:
        serving = Serving("chat", ScriptedEngine(says("Hello there")))
        return await serving.until_stopped(60.0)

    answer = asyncio.run(scenario())
    assert answer.json()["choices"][0]["message"]["content"] == "Hello there"


@pytest.mark.parametrize(("stream", "status"), [(True, 503), (False, 503)])
def test_who_waits_for_a_model_is_told_too(stream: bool, status: int) -> None:
    class Loading(ScriptedEngine):
        async def card(self, model: str | None) -> ModelCard:
            self.starts.put_nowait("")
            return await asyncio.Future[ModelCard]()

    async def scenario() -> httpx.Response:
        return await Serving("chat", Loading(says("x"))).until_stopped(0.0, stream=stream)

    answer = asyncio.run(scenario())
    assert answer.status_code == status
    assert "stopped before" in answer.json()["error"]["message"]


@pytest.mark.parametrize("protocol", REQUESTS)
def test_what_comes_after_is_refused_in_its_own_form(protocol: str) -> None:
    async def scenario() -> httpx.Response:
        serving = Serving(protocol, CountingCluster(says("x")))
        await serving.stopping.end(60.0)
        async with http(serving.app) as client:
            return await client.post(serving.path, json=serving.body)

    answer = asyncio.run(scenario())
    assert answer.status_code in (503, 529)
    assert answer.headers["connection"] == "close"
    assert "stopping" in answer.json()["error"]["message"]
