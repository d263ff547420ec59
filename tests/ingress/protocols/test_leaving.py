"""However an answer ends, nothing that it started outlives it; while it is silent, it says so."""

import asyncio

import httpx
import pytest

from deployments.ingress.settings import IngressSettings
from tests.ingress.clusters import CountingCluster
from tests.ingress.edge import application
from tests.ingress.engines import Script, forever, never, says
from tests.ingress.protocols.every import EACH, EACH_STREAM
from tests.ingress.protocols.protocol import Protocol
from tests.openai.serving import Socket


async def begin(
    protocol: Protocol, script: Script, stream: bool
) -> tuple[CountingCluster, Socket, "asyncio.Task[None]"]:
    """A request whose choices have all begun."""
    engine = CountingCluster(script, protocol.card)
    socket = Socket(protocol.path, {**protocol.hello, **protocol.several, "stream": stream})
    serving = asyncio.create_task(socket(application(protocol.path, engine)))
    for _ in range(protocol.several.get("n", 1)):
        await engine.starts.get()
    return engine, socket, serving


@EACH
@pytest.mark.parametrize(
    ("script", "stream", "after"),
    [(forever(), False, 0), (never(), True, 0), (forever(), True, 5)],
    ids=["unary", "before its first token", "in mid stream"],
)
async def test_who_leaves_leaves_nothing_behind(
    protocol: Protocol, script: Script, stream: bool, after: int
) -> None:
    engine, socket, serving = await begin(protocol, script, stream)
    messages = [await socket.sent.get() for _ in range(after)]
    socket.leave()
    await serving
    assert engine.running == 0
    assert [message["status"] for message in messages[:1]] == [200] * (after > 0)


@EACH
@EACH_STREAM
async def test_a_cancelled_server_task_closes_everything(protocol: Protocol, stream: bool) -> None:
    engine, _, serving = await begin(protocol, forever(), stream)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert engine.running == 0


@EACH
async def test_silence_is_filled_and_changes_nothing(protocol: Protocol) -> None:
    gate = asyncio.Event()
    engine = CountingCluster(says("Hello", gate=gate, size=99), protocol.card)
    socket = Socket(protocol.path, {**protocol.hello, **protocol.tells_all, "stream": True})
    settings = IngressSettings(keep_alive_s=0.01)
    serving = asyncio.create_task(socket(application(protocol.path, engine, settings)))
    assert (await socket.sent.get())["status"] == 200
    received = b""
    while received.count(protocol.silence) < 3:
        received += (await socket.sent.get())["body"]
    gate.set()
    await serving
    while not socket.sent.empty():
        received += socket.sent.get_nowait()["body"]
    assert received.startswith(protocol.silence)
    rest = received.replace(protocol.silence, b"")
    headers = {"content-type": "text/event-stream"}
    events = protocol.events_of(httpx.Response(200, headers=headers, content=rest))
    said = protocol.said(protocol.fold(events))
    assert (said.text, said.ending) == ("Hello", "end")
