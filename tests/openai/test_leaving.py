"""However an answer ends, nothing that it started outlives it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.ingress.metrics import Metrics
from deployments.openai.routes import app
from tests.ingress.engines import ScriptedEngine, forever, says
from tests.openai.serving import CHAT, HELLO, Socket, served


async def test_a_stop_string_leaves_the_engine() -> None:
    engine = ScriptedEngine(forever())
    socket = Socket(CHAT, {**HELLO, "stop": "___________"})
    engine.script = says("x" * 5 + "_" * 300)
    await socket(served(engine))
    assert engine.running == 0


async def test_one_that_fails_ends_all_choices() -> None:
    engine = ScriptedEngine(forever())

    async def script(request: Any) -> Any:
        inner = forever() if request.request_id.endswith("-0") else broken
        async for event in inner(request):
            yield event

    async def broken(request: Any) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        raise RuntimeError("broken")
        yield

    engine.script = script
    socket = Socket(CHAT, {**HELLO, "n": 2})
    await socket(served(engine))
    assert (await socket.sent.get())["status"] == 500
    assert engine.running == 0


async def test_a_slow_reader_holds_the_engine_back() -> None:
    taken = 0

    async def counted(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        nonlocal taken
        async for event in forever()(request):
            taken += 1
            yield event

    engine = ScriptedEngine(counted)
    socket = Socket(CHAT, {**HELLO, "stream": True})
    socket.sent = asyncio.Queue(maxsize=1)
    serving = asyncio.create_task(socket(served(engine)))
    await engine.starts.get()
    for _ in range(200):
        await asyncio.sleep(0)
    socket.leave()
    await serving
    assert 0 < taken < 10


async def test_the_metrics_tell_who_left() -> None:
    metrics, engine = Metrics(), ScriptedEngine(forever())
    serving_app = app(engine, metrics)
    socket = Socket(CHAT, {**HELLO, "stream": True})
    serving = asyncio.create_task(socket(serving_app))
    await socket.sent.get()
    labels = {"model": "tiny", "endpoint": "chat_completions", "request_type": "stream"}
    assert metrics.registry.get_sample_value("manta_inflight_requests", labels) == 1
    socket.leave()
    await serving
    assert metrics.registry.get_sample_value("manta_inflight_requests", labels) == 0
    ended = {**labels, "status": "error", "error": "cancelled"}
    assert metrics.registry.get_sample_value("manta_requests_total", ended) == 1
