"""However an answer ends, nothing that it started outlives it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.ingress.metrics import Metrics
from deployments.openai.routes import app
from tests.ingress.engines import ScriptedEngine, forever, never, says
from tests.openai.serving import CHAT, HELLO, Socket, served


async def leaves(engine: ScriptedEngine, stream: bool, after: int) -> list[Any]:
    """Messages that came before the client left, which it does after `after` of them."""
    socket = Socket(CHAT, {**HELLO, "stream": stream, "n": 2})
    serving = asyncio.create_task(socket(served(engine)))
    for _ in range(2):
        await engine.starts.get()
    messages = [await socket.sent.get() for _ in range(after)]
    socket.leave()
    await serving
    assert engine.running == 0
    return messages


def test_leaving_an_answer_that_is_awaited_whole() -> None:
    asyncio.run(leaves(ScriptedEngine(forever()), stream=False, after=0))


def test_leaving_before_the_first_token() -> None:
    asyncio.run(leaves(ScriptedEngine(never()), stream=True, after=0))


def test_leaving_in_the_middle_of_a_stream() -> None:
    messages = asyncio.run(leaves(ScriptedEngine(forever()), stream=True, after=5))
    assert messages[0]["status"] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_cancelled_server_task_closes_everything(stream: bool) -> None:
    async def cancelled() -> None:
        engine = ScriptedEngine(forever())
        socket = Socket(CHAT, {**HELLO, "stream": stream})
        serving = asyncio.create_task(socket(served(engine)))
        await engine.starts.get()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert engine.running == 0

    asyncio.run(cancelled())


def test_a_stop_string_leaves_the_engine() -> None:
    async def stops() -> None:
        engine = ScriptedEngine(forever())
        socket = Socket(CHAT, {**HELLO, "stop": "___________"})
        engine.script = says("x" * 5 + "_" * 300)
        await socket(served(engine))
        assert engine.running == 0

    asyncio.run(stops())


def test_one_that_fails_ends_all_choices() -> None:
    async def fails() -> None:
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

    asyncio.run(fails())


def test_silence_is_filled_with_comments_and_cancels_nothing() -> None:
    async def waits() -> bytes:
        gate = asyncio.Event()
        engine = ScriptedEngine(says("Hello", gate=gate, size=99))
        socket = Socket(CHAT, {**HELLO, "stream": True})
        serving = asyncio.create_task(socket(served(engine, keep_alive_s=0.01)))
        assert (await socket.sent.get())["status"] == 200
        received = b""
        while received.count(b": keep-alive\n\n") < 3:
            received += (await socket.sent.get())["body"]
        gate.set()
        await serving
        while not socket.sent.empty():
            received += socket.sent.get_nowait()["body"]
        return received

    received = asyncio.run(waits())
    assert b'"content":"Hello"' in received
    assert received.startswith(b": keep-alive\n\n")
    assert received.count(b'"role":"assistant"') == 1
    assert received.endswith(b"data: [DONE]\n\n")


def test_a_slow_reader_holds_the_engine_back() -> None:
    async def slow() -> int:
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
        return taken

    assert 0 < asyncio.run(slow()) < 10


def test_the_metrics_tell_who_left() -> None:
    async def counted() -> Metrics:
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
        return metrics

    asyncio.run(counted())
