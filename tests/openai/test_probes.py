"""Answers behind a proxy that sees a client leave only when it is written to."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.types import Message

from deployments.anthropic.events import PING
from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.ingress.settings import IngressSettings
from tests.ingress.edge import application
from tests.ingress.engines import Loading, Script, ScriptedEngine, never, says
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.completions import COMPLETIONS
from tests.ingress.protocols.every import EACH
from tests.ingress.protocols.messages import MESSAGES
from tests.ingress.protocols.protocol import Protocol, data_in
from tests.ingress.protocols.responses import EVENT, RESPONSES
from tests.openai.serving import CHAT, HELLO, Socket, http, served


async def ask(probe_s: float | None) -> httpx.Response:
    async with http(served(ScriptedEngine(says("Hello there")), probe_s=probe_s)) as client:
        return await client.post(CHAT, json=HELLO)


async def messages(script: Script, probe_s: float) -> list[Message]:
    socket = Socket(CHAT, HELLO)
    await socket(served(ScriptedEngine(script), probe_s=probe_s))
    return [socket.sent.get_nowait() for _ in range(socket.sent.qsize())]


async def fails_late(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    yield TokenEvent(token_ids=(5,))
    raise Refused.of_kind(ErrorKind.UNAVAILABLE, "gone")


async def fails_at_once(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    raise Refused.of_kind(ErrorKind.UNAVAILABLE, "gone")
    yield TokenEvent()


def test_a_probed_answer_is_the_same_json() -> None:
    plain, probed = asyncio.run(ask(None)), asyncio.run(ask(0.0))
    assert probed.text.startswith(" ")
    assert probed.headers["content-type"] == plain.headers["content-type"] == "application/json"
    assert probed.json()["choices"] == plain.json()["choices"]
    assert probed.json()["usage"] == plain.json()["usage"]


def test_a_failure_after_the_first_probe_is_the_body() -> None:
    sent = asyncio.run(messages(fails_late, probe_s=0.0))
    assert sent[0]["status"] == 200
    body = body_of(sent)
    assert body.startswith(b" ")
    assert json.loads(body)["error"]["message"] == "gone"


def test_a_failure_before_it_keeps_its_status() -> None:
    sent = asyncio.run(messages(fails_at_once, probe_s=60.0))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 503


@pytest.mark.parametrize("probe_s", [None, 60.0])
def test_a_quick_answer_is_not_probed(probe_s: float | None) -> None:
    answer = asyncio.run(ask(probe_s))
    assert answer.text.startswith("{")
    assert int(answer.headers["content-length"]) == len(answer.content)


GONE = RequestError(ErrorKind.UNAVAILABLE, "The model could not be loaded")


async def waits(
    engine: Loading, protocol: Protocol, keep_alive_s: float = 15.0, **fields: object
) -> list[Message]:
    """Returns the messages that are sent when the answer begins before its model is loaded.

    A stream that need not wait long for its first comment begins without a probe too.
    """
    probe_s = 0.001 if keep_alive_s > 1 else None
    settings = IngressSettings(keep_alive_s=keep_alive_s, probe_s=probe_s)
    socket = Socket(protocol.path, {**protocol.hello, **fields})
    asking = asyncio.create_task(socket(application(protocol.path, engine, settings)))
    sent = [await socket.sent.get() for _ in range(3)]
    assert engine.waiting == 1
    engine.loaded.set()
    await asking
    return sent + [socket.sent.get_nowait() for _ in range(socket.sent.qsize())]


def body_of(sent: list[Message]) -> bytes:
    assert [part["type"] for part in sent] == ["http.response.start"] + ["http.response.body"] * (
        len(sent) - 1
    )
    assert [part.get("more_body", False) for part in sent[1:]] == [True] * (len(sent) - 2) + [False]
    return b"".join(part["body"] for part in sent[1:])


@pytest.mark.parametrize(("stream", "keep_alive_s"), [(False, 15), (True, 15), (True, 0.001)])
def test_an_answer_that_waits_for_its_model_has_begun_meanwhile(
    stream: bool, keep_alive_s: float
) -> None:
    sent = asyncio.run(waits(Loading(), CHATS, keep_alive_s, stream=stream))
    body = body_of(sent)
    assert sent[0]["status"] == 200
    headers = dict(sent[0]["headers"])
    if stream:
        assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert body.startswith(b": keep-alive\n\n")
        assert body.count(b'"role":"assistant"') == 1
        assert body.endswith(b"data: [DONE]\n\n")
    else:
        assert headers[b"content-type"] == b"application/json"
        assert json.loads(body)["choices"][0]["message"]["content"] == "Hello there"


def test_anthropics_clients_are_pinged_while_their_model_loads() -> None:
    told = body_of(asyncio.run(waits(Loading(), MESSAGES, stream=True)))
    assert told.startswith(PING)
    assert told.count(b"event: message_start") == 1
    assert b"keep-alive" not in told


@EACH
@pytest.mark.parametrize("keep_alive_s", [15, 0.001])
def test_a_stream_whose_model_does_not_come_ends_with_the_error(
    protocol: Protocol, keep_alive_s: float
) -> None:
    sent = asyncio.run(waits(Loading(GONE), protocol, keep_alive_s, stream=True))
    told = body_of(sent).replace(protocol.silence, b"").decode()
    [event] = data_in(told)
    assert event["error"]["message"] == GONE.message
    assert told.endswith("data: [DONE]\n\n") == (protocol in (CHATS, COMPLETIONS))
    if protocol is RESPONSES:
        EVENT.validate_python(event, strict=True)
        assert told.startswith("event: error\n")
        assert (event["message"], event["sequence_number"]) == (GONE.message, 0)


@EACH
def test_the_error_of_a_unary_answer_whose_model_does_not_come_is_its_body(
    protocol: Protocol,
) -> None:
    sent = asyncio.run(waits(Loading(GONE), protocol))
    answer = json.loads(body_of(sent))
    assert (sent[0]["status"], answer["error"]["message"]) == (200, GONE.message)
    assert answer.get("type") == ("error" if protocol is MESSAGES else None)


def test_a_unary_answer_without_a_proxy_waits_for_its_status() -> None:
    async def asks() -> httpx.Response:
        engine = Loading(GONE)
        app = served(engine, keep_alive_s=0.001)
        async with http(app) as client:
            unary = asyncio.create_task(client.post(CHAT, json=HELLO))
            await engine.asked.acquire()
            socket = Socket(CHAT, {**HELLO, "stream": True})
            stream = asyncio.create_task(socket(app))
            assert (await socket.sent.get())["status"] == 200
            engine.loaded.set()
            await stream
            return await unary

    assert asyncio.run(asks()).status_code == 503


async def test_leaving_is_seen_before_a_stream_that_waits_for_its_model_begins() -> None:
    engine = Loading()
    socket = Socket(CHAT, {**HELLO, "stream": True})
    asking = asyncio.create_task(socket(served(engine)))
    await engine.asked.acquire()
    socket.leave()
    await asking
    assert socket.sent.empty()
    assert engine.waiting == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_is_seen_while_the_model_loads(stream: bool) -> None:
    engine = Loading()
    socket = Socket(CHAT, {**HELLO, "stream": stream})
    asking = asyncio.create_task(socket(served(engine, probe_s=0.001)))
    await socket.sent.get()
    socket.leave()
    await asking
    assert engine.waiting == 0


async def test_a_resumable_stream_waits_for_its_model_without_its_client() -> None:
    engine = Loading()
    socket = Socket(CHAT, {**HELLO, "stream": True})
    socket.scope["headers"] += [(b"x-conversation-id", b"c")]  # type: ignore[operator]
    asking = asyncio.create_task(socket(served(engine, probe_s=0.001)))
    await socket.sent.get()
    socket.leave()
    await asking
    assert engine.waiting == 1
    engine.loaded.set()
    assert await engine.starts.get()


async def test_a_stream_that_waits_for_its_first_token_has_begun_meanwhile() -> None:
    socket = Socket(CHAT, {**HELLO, "stream": True})
    asking = asyncio.create_task(socket(served(ScriptedEngine(never()), probe_s=0.001)))
    start = await socket.sent.get()
    socket.leave()
    await asking
    assert start["status"] == 200


async def test_a_request_that_takes_long_to_prepare_is_refused_with_its_status() -> None:
    words = {"role": "user", "content": "word " * 200_000}
    async with http(served(ScriptedEngine(says("x")), probe_s=0.001)) as client:
        response = await client.post(CHAT, json={"messages": [words]})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")


def test_a_refusal_before_the_answer_begins_keeps_its_status() -> None:
    engine = Loading(GONE)
    engine.loaded.set()

    async def ask() -> httpx.Response:
        async with http(served(engine, probe_s=60.0)) as client:
            return await client.post(CHAT, json=HELLO)

    assert asyncio.run(ask()).status_code == 503
