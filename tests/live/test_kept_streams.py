"""Kept streams are found whichever replica of an ingress is asked, on a real Ray."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.openai.routes import app
from tests.ingress.engines import ScriptedEngine, says
from tests.live.fleet import CALL_S, delete
from tests.openai.serving import CHAT, HELLO, Socket, http

pytestmark = pytest.mark.timeout(300)

KEYS = ("key-of-one", "key-of-another")
STREAM = {**HELLO, "stream": True}


@ingress_deployment("keeper")
class Keeper(ProtocolIngress):
    """OpenAI's ingress over a scripted engine, which stays open before its last word."""

    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp:
        self._gate = asyncio.Event()
        self._engine = ScriptedEngine(says("Hello there", gate=self._gate))
        self._served = app(self._engine, metrics, settings, streams)
        return self._served

    async def at(self, replica_id: str, method: str, *args: object) -> object:
        """Calls a method of the replica of this id alone."""
        if replica_id != serve.get_replica_context().replica_id.unique_id:
            return None
        return await getattr(self, method)(*args)

    async def start_stream(self, name: str) -> bool:
        """Begins a stream, whose client leaves after its first bytes."""
        socket = Socket(CHAT, STREAM)
        headers = {"content-type": "application/json", "x-conversation-id": name}
        headers["x-api-key"] = KEYS[0]
        socket.scope["headers"] = [(k.encode(), v.encode()) for k, v in headers.items()]
        asking = asyncio.create_task(socket(self._served))
        await socket.sent.get()
        await socket.sent.get()
        socket.leave()
        await asking
        return True

    async def end(self) -> bool:
        self._gate.set()
        return True

    async def running(self) -> int:
        return self._engine.running

    async def ask(self, method: str, path: str, key: str, body: object = None) -> tuple[int, str]:
        async with http(self._served) as client:
            headers = {"x-api-key": key}
            answer: httpx.Response = await client.request(method, path, json=body, headers=headers)
            return answer.status_code, answer.text


class Pair:
    """Two replicas: `here` begins streams, `there` is asked for them."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        ids = sorted(labels["replica"] for labels, _ in handle.broadcast("samples").results())
        self.here, self.there = ids

    def call(self, replica: str, method: str, *args: object) -> Any:
        return self.begin_call(replica, method, *args)()

    def begin_call(self, replica: str, method: str, *args: object) -> Callable[[], Any]:
        """Returns what waits for the answer."""
        answers = self._handle.broadcast("at", replica, method, *args)

        def answer() -> Any:
            results = answers.results(timeout_s=CALL_S, return_exceptions=True)
            [said] = [
                result
                for result in results
                if result is not None and not isinstance(result, RayError)
            ]
            return said

        return answer

    def ask(
        self, method: str, path: str, body: object = None, key: str = KEYS[0]
    ) -> tuple[int, str]:
        """Asks the replica that has begun no stream."""
        answer: tuple[int, str] = self.call(self.there, "ask", method, path, key, body)
        return answer

    def kill(self, replica: str) -> None:
        """Kills the replica as a crash would."""
        name = f"SERVE_REPLICA::keeper#keeper#{replica}"
        ray.kill(ray.get_actor(name, namespace="serve"), no_restart=True)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    keeper = Keeper.options(num_replicas=2).bind(IngressSettings(api_keys=KEYS))  # type: ignore[attr-defined]
    yield Pair(serve.run(keeper, name="keeper", route_prefix=None))
    delete("keeper")


def test_a_stream_is_followed_looked_up_and_stopped_from_another_replica(pair: Pair) -> None:
    pair.call(pair.here, "start_stream", "c1")
    asked = {"conversation_ids": ["c1", "c2"]}
    status, found = pair.ask("POST", "/v1/streams/lookup", asked)
    assert (status, found.count("conversation_id"), '"is_done":false' in found) == (200, 1, True)
    assert pair.ask("POST", "/v1/streams/lookup", asked, KEYS[1]) == (200, "[]")
    assert pair.ask("GET", "/v1/stream?conv_id=c1", key=KEYS[1])[0] == 404
    assert pair.ask("DELETE", "/v1/stream?conv_id=c1", key=KEYS[1])[0] == 204
    assert pair.call(pair.here, "running") == 1  # another's stream is not stopped
    status, refusal = pair.ask("GET", "/v1/stream?conv_id=c2")
    assert (status, "conv_id" in refusal) == (404, True)

    pair.call(pair.here, "start_stream", "c2")
    assert pair.ask("DELETE", "/v1/stream?conv_id=c2")[0] == 204
    assert pair.ask("GET", "/v1/stream?conv_id=c2")[0] == 404

    following = pair.begin_call(pair.there, "ask", "GET", "/v1/stream?conv_id=c1", KEYS[0])
    pair.call(pair.here, "end")
    status, whole = following()
    assert status == 200
    assert whole.endswith("data: [DONE]\n\n")
    assert "".join(pieces(whole)) == "Hello there"
    assert pair.ask("GET", "/v1/stream?conv_id=c1&from=100") == (200, whole[100:])
    own = pair.call(pair.here, "ask", "GET", "/v1/stream?conv_id=c1", KEYS[0])
    assert own == (200, whole)

    pair.call(pair.there, "end")
    pair.call(pair.there, "start_stream", "c1")  # a stream of the same name ends the older one
    deadline = time.monotonic() + CALL_S
    while pair.call(pair.here, "ask", "GET", "/v1/stream?conv_id=c1", KEYS[0]) == own:
        assert time.monotonic() < deadline

    pair.call(pair.here, "start_stream", "c3")
    assert pair.ask("GET", "/v1/stream?conv_id=c3")[0] == 200
    pair.kill(pair.here)
    deadline = time.monotonic() + CALL_S
    while pair.ask("GET", "/v1/stream?conv_id=c3")[0] != 404:  # it dies a moment later
        assert time.monotonic() < deadline


def pieces(stream: str) -> list[str]:
    data = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data")]
    chunks = [json.loads(datum) for datum in data if datum != "[DONE]"]
    return [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
