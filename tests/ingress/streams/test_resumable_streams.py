"""Streams that outlive their connections, and how they end: stopped, replaced, idle, forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.http.app import protocol_app
from deployments.ingress.metrics import Metrics
from deployments.ingress.routes.service import Service
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.replay_buffer import ReplayBuffer, StreamPart
from deployments.ingress.streams.resumable_streams import ResumableStreams, StreamLimits
from deployments.ingress.streams.routes import stream_routes
from deployments.openai.routes import CHAT as OPERATION
from tests.ingress.engines import Script, ScriptedEngine, fails, forever, says
from tests.openai.serving import CHAT, HELLO, Socket, chunks_of, http

STREAM = {**HELLO, "stream": True}
NAMED = {"x-conversation-id": "c1"}


class Server:
    """An application whose streams are kept, over a scripted engine."""

    def __init__(self, script: Script, limits: StreamLimits, keys: tuple[str, ...] = ()) -> None:
        self.engine = ScriptedEngine(script)
        self.metrics = Metrics()
        self.streams = ResumableStreams(limits)
        settings = IngressSettings(api_keys=keys)
        service = Service(engine=self.engine, metrics=self.metrics, streams=self.streams)
        routes = [service.route(OPERATION), *stream_routes(self.streams, settings)]
        self.app: ASGIApp = protocol_app(routes, openai_envelope, settings)

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        async with http(self.app) as client:
            return await client.request(method, path, **request)

    def begin(
        self, name: str, body: object = STREAM, key: str = "none"
    ) -> tuple[Socket, "asyncio.Task[None]"]:
        """Somebody who asks for a stream of that name."""
        socket = Socket(CHAT, body)
        named = [(b"content-type", b"application/json"), (b"x-conversation-id", name.encode())]
        socket.scope |= {"headers": [*named, (b"x-api-key", key.encode())]}
        return socket, asyncio.create_task(socket(self.app))

    async def leave(self, after: int, name: str = "c1", key: str = "none") -> None:
        """Begins a stream of that name, and goes after some of its messages."""
        socket, serving = self.begin(name, key=key)
        for _ in range(after):
            await socket.sent.get()
        socket.leave()
        await serving

    async def follow(self, name: str) -> tuple[Socket, "asyncio.Task[None]"]:
        """Somebody who reads a stream of that name, which has begun."""
        socket = Socket("/v1/stream", None)
        socket.scope |= {"method": "GET", "query_string": f"conv_id={name}".encode()}
        socket.scope |= {"client": ("127.0.0.1", 123)}  # as others here
        reading = asyncio.create_task(socket(self.app))
        assert (await socket.sent.get())["status"] == 200
        return socket, reading

    async def ended(self) -> None:
        """Waits until no stream goes on, and what was to happen at once has happened."""
        await asyncio.gather(*self.streams.running)
        await asyncio.sleep(0)
        assert self.engine.running == 0

    def requests(self, error: str) -> float | None:
        labels = {"model": "tiny", "endpoint": "chat_completions", "request_type": "stream"}
        status = "error" if error else "success"
        ended = {**labels, "status": status, "error": error}
        return self.metrics.registry.get_sample_value("manta_requests_total", ended)


def spoken(stream: httpx.Response) -> str:
    choices = (chunk["choices"][0] for chunk in chunks_of(stream))
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@asynccontextmanager
async def playing(
    script: Script, keys: tuple[str, ...] = (), **limits: Any
) -> AsyncIterator[Server]:
    server = Server(script, StreamLimits(**limits), keys)
    yield server
    await server.ended()


async def test_a_client_that_comes_back_reads_the_same_bytes() -> None:
    gate = asyncio.Event()
    async with playing(says("Hello there, world", gate=gate)) as server:
        await server.leave(after=3)
        assert server.engine.running == 1
        gate.set()
        whole = await server.ask("GET", "/v1/stream?conv_id=c1&from=0")
        assert whole.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert whole.text.endswith("data: [DONE]\n\n")
        assert spoken(whole) == "Hello there, world"
        for offset in (1, 100, len(whole.content) - 1, len(whole.content), len(whole.content) + 9):
            rest = await server.ask("GET", f"/v1/stream?conv_id=c1&from={offset}")
            assert (rest.status_code, rest.content) == (200, whole.content[offset:])
        assert server.requests("") == 1


async def test_who_stays_reads_the_stream_as_ever() -> None:
    async with playing(says("Hello")) as server:
        kept = await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        again = await server.ask("GET", "/v1/stream?conv_id=c1")
        assert kept.content == again.content
        assert kept.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_two_may_read_at_once() -> None:
    gate = asyncio.Event()
    async with playing(says("Hello there", gate=gate)) as server:
        await server.leave(after=2)
        readers = [
            asyncio.create_task(server.ask("GET", "/v1/stream?conv_id=c1")) for _ in range(2)
        ]
        gate.set()
        first, second = [(await reader).content for reader in readers]
        assert first == second
        assert first.endswith(b"data: [DONE]\n\n")


async def test_a_stream_is_stopped_by_name_and_then_unknown() -> None:
    async with playing(forever()) as server:
        await server.leave(after=3)
        for _ in range(2):
            stopped = await server.ask("DELETE", "/v1/stream?conv_id=c1")
            assert (stopped.status_code, stopped.content) == (204, b"")
        await server.ended()
        assert (await server.ask("GET", "/v1/stream?conv_id=c1")).status_code == 404
        assert server.requests("cancelled") == 1


async def test_a_reader_of_a_stream_that_is_stopped_comes_to_an_end() -> None:
    async with playing(forever()) as server:
        reading = asyncio.create_task(server.ask("POST", CHAT, json=STREAM, headers=NAMED))
        await server.engine.starts.get()
        await server.ask("DELETE", "/v1/stream?conv_id=c1")
        assert (await reading).status_code == 200


async def test_the_same_name_again_replaces_the_stream() -> None:
    async with playing(forever()) as server:
        await server.leave(after=3)
        server.engine.script = says("another")
        new = await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        await server.ended()
        assert spoken(new) == "another"
        assert (await server.ask("GET", "/v1/stream?conv_id=c1")).content == new.content


async def test_a_name_replaced_before_it_began_leaks_nothing() -> None:
    async with playing(says("Hello")) as server:
        both = [
            asyncio.create_task(server.ask("POST", CHAT, json=STREAM, headers=NAMED))
            for _ in range(2)
        ]
        for task in both:
            await task
        labels = {"model": "tiny", "endpoint": "chat_completions", "request_type": "stream"}
        inflight = server.metrics.registry.get_sample_value("manta_inflight_requests", labels)
        assert inflight == 0


async def test_a_stream_that_nobody_reads_is_stopped() -> None:
    async with playing(forever(), idle_s=0.0) as server:
        await server.leave(after=3)
        await server.ended()
        assert (await server.ask("GET", "/v1/stream?conv_id=c1")).status_code == 404


async def test_a_stream_that_has_ended_is_forgotten_in_time() -> None:
    async with playing(says("Hello"), kept_s=0.0) as server:
        await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        await server.ended()
        assert (await server.ask("GET", "/v1/stream?conv_id=c1")).status_code == 404


async def test_bytes_that_are_lost_are_not_made_up() -> None:
    async with playing(says("Hello"), capacity=50) as server:
        await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        lost = await server.ask("GET", "/v1/stream?conv_id=c1&from=0")
        assert (lost.status_code, lost.json()["error"]["param"]) == (400, "from")
        [described] = (
            await server.ask("POST", "/v1/streams/lookup", json={"conversation_ids": ["c1"]})
        ).json()
        rest = await server.ask("GET", f"/v1/stream?conv_id=c1&from={described['total_bytes'] - 9}")
        assert rest.content == b" [DONE]\n\n"


async def test_there_is_room_for_so_many() -> None:
    async with playing(forever(), most=2) as server:
        await server.leave(after=3, name="old")
        await server.leave(after=3, name="new")
        readers = [await server.follow("new")]
        await server.leave(after=3, name="third")
        names = ["old", "new", "third"]
        found = await server.ask("POST", "/v1/streams/lookup", json={"conversation_ids": names})
        assert [entry["conversation_id"] for entry in found.json()] == ["new", "third"]
        readers.append(await server.follow("third"))
        full = await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        assert full.status_code == 429
        for name in names:
            await server.ask("DELETE", f"/v1/stream?conv_id={name}")
        for _, reading in readers:
            await reading


async def test_there_is_no_more_room_for_those_that_come_at_once() -> None:
    async with playing(forever(), most=2) as server:
        begun = [server.begin(f"c{number}") for number in range(5)]
        statuses = [(await socket.sent.get())["status"] for socket, _ in begun]
        assert sorted(statuses) == [200, 200, 429, 429, 429]
        assert server.requests("overloaded") == 3
        for number, (socket, serving) in enumerate(begun):
            socket.leave()
            await server.ask("DELETE", f"/v1/stream?conv_id=c{number}")
            await serving


async def test_a_refused_request_stops_no_stream() -> None:
    async with playing(forever(), most=1) as server:
        await server.leave(after=3, name="old")
        socket, serving = server.begin("new", {**STREAM, "n": 0})
        assert (await socket.sent.get())["status"] == 400
        await serving
        assert server.engine.running == 1
        await server.ask("DELETE", "/v1/stream?conv_id=old")


async def test_an_early_refusal_keeps_its_status_and_leaves_nothing() -> None:
    async with playing(fails(RequestError(ErrorKind.UNAVAILABLE, "gone"))) as server:
        refused = await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        assert refused.status_code == 503
        await server.ended()
        assert (await server.ask("GET", "/v1/stream?conv_id=c1")).status_code == 404


async def test_an_answer_that_is_no_stream_is_not_kept() -> None:
    async with playing(says("Hello")) as server:
        assert (await server.ask("POST", CHAT, json=HELLO, headers=NAMED)).status_code == 200
        assert (await server.ask("GET", "/v1/stream?conv_id=c1")).status_code == 404


async def test_holders_of_other_keys_have_other_streams() -> None:
    async with playing(says("Hello"), keys=("mine", "theirs")) as server:
        mine = {"authorization": "Bearer mine"}
        await server.ask("POST", CHAT, json=STREAM, headers={**NAMED, **mine})
        path = "/v1/stream?conv_id=c1"
        theirs = {"authorization": "Bearer theirs"}
        assert (await server.ask("GET", path, headers=theirs)).status_code == 404
        assert (await server.ask("DELETE", path, headers=theirs)).status_code == 204
        assert (await server.ask("GET", path, headers=mine)).status_code == 200


async def test_a_lookup_tells_what_is_known() -> None:
    async with playing(says("Hello")) as server:
        kept = await server.ask("POST", CHAT, json=STREAM, headers=NAMED)
        body = {"conversation_ids": ["c1", "c2", "c1"]}
        [found] = (await server.ask("POST", "/v1/streams/lookup", json=body)).json()
        assert found["conversation_id"] == "c1"
        assert found["is_done"] is True
        assert found["total_bytes"] == len(kept.content)
        assert 0 < found["started_at"] <= found["completed_at"]


@pytest.mark.parametrize(
    ("method", "path", "request_", "param"),
    [
        ("GET", "/v1/stream", {}, "conv_id"),
        ("GET", "/v1/stream?conv_id=", {}, "conv_id"),
        ("GET", "/v1/stream?conv_id=%0a", {}, "conv_id"),
        ("GET", "/v1/stream?conv_id=c1&from=-1", {}, "from"),
        ("GET", "/v1/stream?conv_id=c1&from=x", {}, "from"),
        ("GET", f"/v1/stream?conv_id=c1&from={'9' * 40}", {}, "from"),
        ("DELETE", f"/v1/stream?conv_id={'x' * 129}", {}, "conv_id"),
        ("POST", "/v1/streams/lookup", {"json": {}}, "conversation_ids"),
        ("POST", "/v1/streams/lookup", {"json": {"conversation_ids": "c"}}, "conversation_ids"),
        ("POST", "/v1/streams/lookup", {"json": {"conversation_ids": [""]}}, "conversation_ids"),
        (
            "POST",
            CHAT,
            {"json": STREAM, "headers": {"x-conversation-id": "a b"}},
            "X-Conversation-Id",
        ),
    ],
)
async def test_wrong_names_and_offsets_are_refused(
    method: str, path: str, request_: dict[str, Any], param: str
) -> None:
    async with playing(says("Hello")) as server:
        response = await server.ask(method, path, **request_)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == param
        assert not server.engine.requests


async def test_a_part_is_what_has_come_and_waits_for_no_more_than_it_may() -> None:
    replay = ReplayBuffer(capacity=8)
    assert await replay.part(0, 0.0, 4) == StreamPart(b"", False, False)
    waiting = asyncio.create_task(replay.part(0, 60.0, 4))
    await asyncio.sleep(0)
    replay.append(b"abcdef")
    assert await waiting == StreamPart(b"abcd", True, False)
    replay.finish(RequestError(ErrorKind.UNAVAILABLE, "it went away"))
    assert await replay.part(4, 60.0, 4) == StreamPart(b"ef", True, False)
    with pytest.raises(Refused):
        await replay.part(6, 60.0, 4)
    whole = ReplayBuffer(capacity=2)
    whole.append(b"abc")
    whole.finish()
    assert await whole.part(1, 60.0, 4) == StreamPart(b"bc", True, True)
    with pytest.raises(Refused):
        await whole.part(0, 60.0, 4)  # it is not kept any more
