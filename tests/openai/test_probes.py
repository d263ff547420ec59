"""Unary answers behind a proxy that sees a client leave only when it writes to it."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.types import Message

from deployments.wire import ErrorKind, GenerationRequest, Refused, RequestError, TokenEvent
from tests.ingress.engines import Script, ScriptedEngine, says
from tests.openai.serving import CHAT, HELLO, Socket, http, served


async def ask(probe_s: float | None) -> httpx.Response:
    async with http(served(ScriptedEngine(says("Hello there")), probe_s=probe_s)) as client:
        return await client.post(CHAT, json=HELLO)


async def messages(script: Script, probe_s: float) -> list[Message]:
    """What is sent until the answer ends or breaks."""
    socket = Socket(CHAT, HELLO)
    try:
        await socket(served(ScriptedEngine(script), probe_s=probe_s))
    except RuntimeError:
        socket.sent.put_nowait({"type": "broken"})
    return [socket.sent.get_nowait() for _ in range(socket.sent.qsize())]


async def fails_late(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    yield TokenEvent(token_ids=(5,))
    raise Refused(RequestError(ErrorKind.UNAVAILABLE, "gone"))


async def fails_at_once(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    raise Refused(RequestError(ErrorKind.UNAVAILABLE, "gone"))
    yield TokenEvent()


def test_a_probed_answer_is_the_same_json() -> None:
    plain, probed = asyncio.run(ask(None)), asyncio.run(ask(0.0))
    assert probed.text.startswith(" ")
    assert probed.headers["content-type"] == plain.headers["content-type"] == "application/json"
    assert probed.json()["choices"] == plain.json()["choices"]
    assert probed.json()["usage"] == plain.json()["usage"]


def test_a_failure_after_the_first_probe_breaks_the_connection() -> None:
    sent = asyncio.run(messages(fails_late, probe_s=0.0))
    assert sent[0]["status"] == 200
    assert sent[-1] == {"type": "broken"}
    assert all(message["more_body"] for message in sent[1:-1])


def test_a_failure_before_it_keeps_its_status() -> None:
    sent = asyncio.run(messages(fails_at_once, probe_s=60.0))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 503


@pytest.mark.parametrize("probe_s", [None, 60.0])
def test_a_quick_answer_is_not_probed(probe_s: float | None) -> None:
    answer = asyncio.run(ask(probe_s))
    assert answer.text.startswith("{")
    assert int(answer.headers["content-length"]) == len(answer.content)
