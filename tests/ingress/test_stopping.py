"""An ingress that is told to stop: what runs may end, and is else told why in its own form."""

import asyncio
from typing import Any

import httpx

from deployments.ingress.settings import IngressSettings
from deployments.ingress.stopping import Stopping
from tests.ingress.clusters import CountingCluster
from tests.ingress.edge import application
from tests.ingress.engines import Loading, ScriptedEngine, forever, says
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.every import EACH, EACH_STREAM
from tests.ingress.protocols.protocol import Protocol, last_error
from tests.openai.serving import http


class Serving:
    """One protocol's application, and what a request to it said when the server had stopped."""

    def __init__(self, protocol: Protocol, engine: Any) -> None:
        self.engine = engine
        self.stopping = Stopping()
        self.path, self.body = protocol.path, protocol.hello
        self.app = application(self.path, engine, IngressSettings(stopping=self.stopping))

    async def until_stopped(self, seconds: float, **fields: object) -> httpx.Response:
        async with http(self.app) as client:
            asking = asyncio.create_task(client.post(self.path, json={**self.body, **fields}))
            await self.engine.starts.get()
            await self.stopping.end(seconds)
            return await asking


@EACH
async def test_a_stream_that_takes_too_long_ends_with_an_error(protocol: Protocol) -> None:
    serving = Serving(protocol, CountingCluster(forever()))
    answer = await serving.until_stopped(0.0, stream=True)
    assert answer.status_code == 200
    assert serving.engine.running == 0
    assert "stopped before" in last_error(answer.text)["message"]


@EACH
async def test_a_unary_answer_that_takes_too_long_is_refused(protocol: Protocol) -> None:
    answer = await Serving(protocol, CountingCluster(forever())).until_stopped(0.0)
    assert answer.status_code in (503, 529)
    assert answer.headers["retry-after"]
    assert "stopped before" in answer.json()["error"]["message"]


async def test_an_answer_that_ends_in_time_is_whole() -> None:
    serving = Serving(CHATS, ScriptedEngine(says("Hello there")))
    answer = await serving.until_stopped(60.0)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello there"


@EACH_STREAM
async def test_who_waits_for_a_model_is_told_too(stream: bool) -> None:
    engine = Loading()
    serving = Serving(CHATS, engine)
    async with http(serving.app) as client:
        body = {**serving.body, "stream": stream}
        asking = asyncio.create_task(client.post(serving.path, json=body))
        await engine.asked.acquire()
        await serving.stopping.end(0.0)
        answer = await asking
    assert answer.status_code == 503
    assert "stopped before" in answer.json()["error"]["message"]


@EACH
async def test_what_comes_after_is_refused_in_its_own_form(protocol: Protocol) -> None:
    serving = Serving(protocol, CountingCluster(says("x")))
    await serving.stopping.end(60.0)
    async with http(serving.app) as client:
        answer = await client.post(serving.path, json=serving.body)
    assert answer.status_code in (503, 529)
    assert answer.headers["connection"] == "close"
    assert "stopping" in answer.json()["error"]["message"]
