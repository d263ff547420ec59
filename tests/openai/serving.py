"""The OpenAI application over a scripted engine, asked through ASGI without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
from openai import AsyncOpenAI
from starlette.types import ASGIApp, Message

from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.openai.responses.database_store import DatabaseStore
from deployments.openai.routes import app
from tests.ingress.engines import ScriptedEngine

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


def served(
    engine: ScriptedEngine,
    *,
    keep_alive_s: float = 15.0,
    probe_s: float | None = None,
    api_keys: tuple[str, ...] = (),
    encryption_key: bytes = b"",
    store: DatabaseStore | None = None,
) -> ASGIApp:
    settings = IngressSettings(
        keep_alive_s=keep_alive_s,
        probe_s=probe_s,
        api_keys=api_keys,
        encryption_key=encryption_key,
    )
    return app(engine, Metrics(), settings, store=store)


@asynccontextmanager
async def http(served_app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(served_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://manta") as client:
        yield client


@asynccontextmanager
async def sdk(served_app: ASGIApp) -> AsyncIterator[AsyncOpenAI]:
    transport = httpx.ASGITransport(served_app)
    async with httpx.AsyncClient(transport=transport) as inner:
        yield AsyncOpenAI(
            api_key="none", base_url="http://manta/v1", http_client=cast(Any, inner), max_retries=0
        )


async def post(engine: ScriptedEngine, path: str, body: object) -> httpx.Response:
    async with http(served(engine)) as client:
        return await client.post(path, json=body)


def chunks_of(response: httpx.Response) -> list[Any]:
    """The JSON of every datum before [DONE]."""
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    data = [frame.removeprefix("data: ") for frame in frames[:-2] if frame.startswith("data: ")]
    return [json.loads(datum) for datum in data]


class Socket:
    """One ASGI exchange under the test's control, for clients that leave."""

    def __init__(self, path: str, body: object) -> None:
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "/v1",  # as Serve sets it
            "headers": [(b"content-type", b"application/json")],
        }
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
        self.sent: asyncio.Queue[Message] = asyncio.Queue()

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def __call__(self, served_app: ASGIApp) -> None:
        await served_app(self.scope, self._incoming.get, self.sent.put)
