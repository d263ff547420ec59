"""Whatever is too large, too slow or in a form of its own is refused, and leaves nothing behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.ingress.generation import deadline
from deployments.ingress.generation.choice_merge import MAX_ACTIVE_CHOICES
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.llama.tools.settings import ToolSettings
from deployments.openai.routes import app
from serve_app.applications.llama import app as llama_app
from tests.ingress.clusters import CountingCluster
from tests.ingress.edge import ask, served
from tests.ingress.engines import Script, ScriptedEngine, fails, forever, never, raises, says
from tests.openai.serving import CHAT, COMPLETIONS, HELLO, Socket, chunks_of, http

SOON = 0.2  # what comes before it has to come on a busy machine, too
JSON = {"content-type": "application/json"}


SLOW = IngressSettings(body_timeout_s=SOON)


async def half_a_body() -> AsyncIterator[bytes]:
    yield b'{"messages": '
    await asyncio.Event().wait()


def test_a_body_that_does_not_come_is_408_and_the_connection_ends() -> None:
    response = ask(served(settings=SLOW), "POST", CHAT, content=half_a_body(), headers=JSON)
    assert response.status_code == 408
    assert response.headers["connection"] == "close"
    assert response.json()["error"]["code"] == "request_timeout"


@pytest.mark.parametrize(
    "path", ["/streams/lookup", "/lora-adapters", "/tools", "/models/unload", "/tokenize"]
)
def test_nor_is_it_waited_for_where_nothing_is_generated(path: str, tmp_path: Path) -> None:
    tools = ToolSettings(folder=str(tmp_path), hosts=("manta",))
    slow = llama_app(CountingCluster(says("x")), Metrics(), SLOW, tools)
    response = ask(slow, "POST", path, content=half_a_body(), headers=JSON)
    assert (response.status_code, response.json()["error"]["code"]) == (408, 408)


def test_a_body_of_the_limit_is_read_and_one_byte_more_is_413() -> None:
    app = served(settings=IngressSettings(body_limit=100))
    body = b'{"prompt": "x"}'.ljust(100)
    assert ask(app, "POST", COMPLETIONS, content=body, headers=JSON).is_success
    assert ask(app, "POST", COMPLETIONS, content=body + b" ", headers=JSON).status_code == 413


@pytest.mark.parametrize("declared", ["101", "9" * 5000])
def test_a_body_said_to_be_too_large_is_not_waited_for(declared: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    headers = {**JSON, "content-length": declared}
    app = served(settings=IngressSettings(body_limit=100))
    assert ask(app, "POST", CHAT, content=body(), headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("encoding", "status"), [("gzip", 415), ("br, identity", 415), ("identity", 200), ("", 200)]
)
def test_an_encoded_body_is_415(encoding: str, status: int) -> None:
    headers = {"content-encoding": encoding}
    response = ask(served(), "POST", CHAT, json=HELLO, headers=headers)
    assert response.status_code == status


def timed_out(script: Script, stream: bool, **settings: Any) -> httpx.Response:
    """The answer to a request whose time is short; nothing of it is left running."""

    async def asks() -> httpx.Response:
        engine = ScriptedEngine(script)
        short = IngressSettings(**{"request_timeout_s": SOON, **settings})
        async with http(app(engine, Metrics(), short)) as client:
            response = await client.post(CHAT, json={**HELLO, "stream": stream, "n": 2})
        assert engine.running == 0
        return response

    return asyncio.run(asks())


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_does_not_begin_in_time_is_504(stream: bool) -> None:
    response = timed_out(never(), stream)
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "timeout"


@pytest.mark.parametrize("keep_alive_s", [SOON / 4, 15.0])
@pytest.mark.parametrize("script", ["halts", "goes on"])
def test_a_stream_that_does_not_end_in_time_ends_with_an_error(
    script: str, keep_alive_s: float
) -> None:
    spoken = says("Hello", gate=asyncio.Event()) if script == "halts" else forever()
    response = timed_out(spoken, True, keep_alive_s=keep_alive_s, request_timeout_s=5 * SOON)
    assert response.status_code == 200
    *chunks, error = chunks_of(response)
    assert error["error"]["code"] == "timeout"
    assert len(chunks) > 1


def test_a_unary_answer_that_goes_on_is_504() -> None:
    assert timed_out(forever(), False).status_code == 504


def test_an_answer_in_time_is_whole() -> None:
    settings = IngressSettings(request_timeout_s=300.0)
    response = ask(served(settings=settings), "POST", CHAT, json=HELLO)
    assert response.json()["choices"][0]["message"]["content"] == "Hello there"


async def sent_until_timeout(script: Script, socket: Socket, **settings: Any) -> list[Message]:
    """Returns the messages that a client has been sent of an answer that takes too long."""
    engine = ScriptedEngine(script)
    try:
        short = IngressSettings(**{"request_timeout_s": SOON, **settings})
        await socket(app(engine, Metrics(), short))
    finally:
        assert engine.running == 0
    return [socket.sent.get_nowait() for _ in range(socket.sent.qsize())]


def test_a_client_that_does_not_read_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "GRACE_S", SOON)
    socket = Socket(CHAT, {**HELLO, "stream": True})
    socket.sent = asyncio.Queue(2)  # messages that it reads
    with pytest.raises(Refused, match="longer than the limit"):
        asyncio.run(sent_until_timeout(forever(), socket, request_timeout_s=5 * SOON))
    start, part = socket.sent.get_nowait(), socket.sent.get_nowait()
    assert (start["status"], part["more_body"]) == (200, True)


def test_a_unary_answer_that_had_begun_ends_with_the_error_when_its_time_is_over() -> None:
    answering = sent_until_timeout(never(), Socket(CHAT, HELLO), probe_s=0.001)
    start, *probes, end = asyncio.run(answering)
    assert start["status"] == 200
    assert {probe["body"] for probe in probes} == {b" "}
    assert "longer than the limit" in json.loads(end["body"])["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("TRACE", CHAT, "POST"),
        ("OPTIONS", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
    ],
)
def test_other_methods_are_405_and_told_what_is_allowed(method: str, path: str, allow: str) -> None:
    response = ask(served(), method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allow)


def test_unknown_query_parameters_change_nothing() -> None:
    assert ask(served(), "POST", CHAT + "?beta=true&beta=&%ff", json=HELLO).is_success


def test_of_what_a_client_sent_only_a_part_comes_back() -> None:
    response = ask(served(), "POST", CHAT, json={**HELLO, "x" * 100_000: 1})
    assert response.status_code == 400
    assert len(response.content) < 5000


def test_many_sequences_of_one_answer_leave_room_for_others() -> None:
    speak, most = says("Hello there"), 0

    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        nonlocal most
        most = max(most, engine.running)
        async for event in speak(request):
            yield event

    engine = ScriptedEngine(script)
    prompts = ["x"] * (MAX_ACTIVE_CHOICES + 100)
    answer = ask(app(engine, Metrics()), "POST", COMPLETIONS, json={"prompt": prompts})
    assert len(answer.json()["choices"]) == len(prompts)
    assert (most, engine.running) == (MAX_ACTIVE_CHOICES, 0)


LATER = RequestError(ErrorKind.OVERLOADED, "later")


@pytest.mark.parametrize("refuses", [raises(Refused(LATER)), fails(LATER)], ids=["raised", "event"])
@pytest.mark.parametrize(("room", "status", "asked"), [(3, 200, 10 + 7), (0, 429, 10)])
def test_sequences_that_find_no_room_wait_for_others_of_their_answer(
    refuses: Script, room: int, status: int, asked: int
) -> None:
    speak = says("Hello there")

    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        fate = speak if engine.running <= room else refuses
        async for event in fate(request):
            yield event

    engine = ScriptedEngine(script)
    answer = ask(app(engine, Metrics()), "POST", COMPLETIONS, json={"prompt": ["x"] * 10})
    assert answer.status_code == status
    if room:
        assert {choice["text"] for choice in answer.json()["choices"]} == {"Hello there"}
    assert (len(engine.requests), engine.running) == (asked, 0)


def test_an_answer_that_fails_begins_no_more_of_its_sequences() -> None:
    engine = ScriptedEngine(fails(RequestError(ErrorKind.UNAVAILABLE, "gone")))
    answer = ask(app(engine, Metrics()), "POST", COMPLETIONS, json={"prompt": ["x"] * 2})
    assert answer.status_code == 503
    assert (len(engine.requests), engine.running) == (1, 0)
