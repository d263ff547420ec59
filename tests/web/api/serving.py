"""`/ui/api` over a store, in this process, as a page or a program reaches it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import JsonValue
from sqlalchemy import QueuePool
from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.ingress.error_bodies import llama_envelope
from deployments.ingress.http.app import folder_app
from deployments.ingress.settings import IngressSettings
from deployments.store.limits import StoreLimits
from deployments.web.api.guard import RequestLimits
from deployments.web.api.opening import StoreOpener
from deployments.web.api.routes import NO_DEFAULTS, api_routes
from deployments.web.headers import PageHeaders
from deployments.web.routes import PUBLIC
from tests.openai.serving import http
from tests.store.talking import CHAT, identifier

OPEN = IngressSettings(hosts=("manta",))
# Tests write as fast as they can.
MANY = RequestLimits(writes=100_000)
NEW = {"if-none-match": "*"}


@dataclass(frozen=True)
class Api:
    """Paths are below `/ui/api`."""

    client: httpx.AsyncClient
    opener: StoreOpener

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        return await self.client.request(method, f"/ui/api{path}", **request)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.ask("GET", path, headers=headers)

    async def add_chat(self, chat: str = CHAT, **fields: object) -> int:
        answer = await self.ask("PUT", f"/chats/{chat}", json=chat_body(**fields), headers=NEW)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["revision"])

    async def add_when_allowed(self, *messages: Mapping[str, object]) -> httpx.Response:
        """A client may have eight requests at once."""
        answer = await self.add(*messages)
        for _ in range(10_000):
            if answer.status_code != 429:
                break
            await asyncio.sleep(0)
            answer = await self.add(*messages)
        return answer

    async def until_idle(self) -> None:
        """Returns when no connection to the database is in use."""
        pool = self.opener.store.database.engine.pool
        assert isinstance(pool, QueuePool)
        is_used = True
        while is_used:
            await asyncio.sleep(0.01)
            is_used = pool.checkedout() > 0

    async def until_waiting(self, n_waiting: int, owner: str = "") -> None:
        """Waits until so many requests wait for changes."""
        for _ in range(100_000):
            if len(self.opener.store.waits._waiting.get(owner, ())) == n_waiting:
                return
            await asyncio.sleep(0)
        raise AssertionError("nobody waits")

    async def add(self, *messages: Mapping[str, object], chat: str = CHAT) -> httpx.Response:
        return await self.ask("POST", f"/chats/{chat}/messages", json={"messages": messages})


@asynccontextmanager
async def served(
    url: str,
    settings: IngressSettings = OPEN,
    requests: RequestLimits = MANY,
    defaults: Mapping[str, JsonValue] = NO_DEFAULTS,
    **limits: int,
) -> AsyncIterator[Api]:
    opener = StoreOpener(url, StoreLimits(**limits))
    async with over(opener, settings, requests, defaults) as api:
        yield api


@asynccontextmanager
async def over(
    opener: StoreOpener,
    settings: IngressSettings = OPEN,
    requests: RequestLimits = MANY,
    defaults: Mapping[str, JsonValue] = NO_DEFAULTS,
) -> AsyncIterator[Api]:
    opener.begin()
    routes = api_routes(opener, settings, defaults, requests)
    try:
        async with http(application(routes, settings)) as client:
            yield Api(client, opener)
    finally:
        await opener.close()


def application(routes: Sequence[Route], settings: IngressSettings = OPEN) -> ASGIApp:
    return PageHeaders(folder_app(routes, llama_envelope, settings, PUBLIC))


def chat_body(**fields: object) -> dict[str, object]:
    return {"title": "A chat", "created_at": 1, "updated_at": 1, **fields}


def message_body(number: int, parent: int | None = None, **fields: object) -> dict[str, object]:
    return {
        "id": identifier(number),
        "parent": None if parent is None else identifier(parent),
        "role": "user",
        "text": f"Message {number}",
        "created_at": number,
        **fields,
    }


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == answer.status_code
    return error
