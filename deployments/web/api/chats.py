"""The endpoints of chats: who asks, what changed, and writes of chats and messages."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from deployments.ingress.generation.answer import while_connected
from deployments.ingress.http.app import request_id_of
from deployments.ingress.http.clients import owner_name, owner_of
from deployments.ingress.http.paging import page_size
from deployments.ingress.http.sse import encode
from deployments.ingress.settings import IngressSettings
from deployments.llama.error_body import envelope
from deployments.store.changes import Cursor, Page
from deployments.store.chats import StaleChat
from deployments.store.store import Store
from deployments.web.api.guard import Guard
from deployments.web.api.requests import Bodies, id_in, made_from, to_its_end, wait_s
from deployments.web.api.schema import ChatBody, MessagesBody
from deployments.wire import ErrorKind, RequestError

DEFAULT_LIMIT, MAX_LIMIT = 200, 500  # rows of an answer
PRIVATE = {"cache-control": "no-store"}
JSON_LINES = "application/jsonl"


class ChatEndpoints:
    def __init__(
        self,
        store: Store,
        settings: IngressSettings,
        guard: Guard,
        defaults: Mapping[str, JsonValue],
    ) -> None:
        self._store = store
        self._settings = settings
        self._guard = guard
        self._defaults = defaults
        self._bodies = Bodies(settings)

    async def me(self, request: Request) -> Response:
        owner = owner_of(request)
        state = await self._store.owners.state(owner)
        return _json(
            {
                "owner": owner_name(request) or owner or None,
                "store": "server",
                "shared": not self._settings.api_keys,
                "revision": state.revision,
                "limits": asdict(self._store.limits),
                "used_bytes": state.n_bytes,
                "defaults": self._defaults,
            }
        )

    async def changes(self, request: Request) -> Response:
        owner, seconds = owner_of(request), wait_s(request)
        cursor = Cursor.read(request.query_params.get("since", "0"))
        limit = page_size(request.query_params, DEFAULT_LIMIT, MAX_LIMIT)
        page = await self._store.changes.page(owner, cursor, limit)
        if page.is_empty and seconds:
            with self._guard.waiting(request):
                waiting = self._changed(owner, page.cursor, limit, seconds)
                page = await while_connected(waiting, request.receive)
        return Response(_changes(page), headers=PRIVATE, media_type="application/json")

    async def _changed(self, owner: str, cursor: Cursor, limit: int, seconds: int) -> Page:
        """The next page, or an empty one when the time is over."""
        end = asyncio.get_running_loop().time() + seconds
        with self._store.waits.waiting(owner) as event:
            while True:
                event.clear()
                page = await self._store.changes.page(owner, cursor, limit)
                left = end - asyncio.get_running_loop().time()
                if not page.is_empty or left <= 0:
                    return page
                cursor = page.cursor
                try:
                    await asyncio.wait_for(event.wait(), left)
                except TimeoutError:
                    return page

    async def put_chat(self, request: Request) -> Response:
        chat, base = id_in(request, "id"), made_from(request)
        fields = await self._bodies.read(request, ChatBody, ChatBody.fields)
        put = self._store.chats.put(owner_of(request), chat, fields, base)
        try:
            return _json({"revision": await to_its_end(put)})
        except StaleChat as stale:
            return _stale(request, stale)

    async def delete_chat(self, request: Request) -> Response:
        delete = self._store.chats.delete(owner_of(request), id_in(request, "id"))
        await to_its_end(delete)
        return Response(status_code=204)

    async def add_messages(self, request: Request) -> Response:
        chat = id_in(request, "id")
        messages = await self._bodies.read(
            request, MessagesBody, lambda body: [one.fields() for one in body.messages]
        )
        add = self._store.chats.add_messages(owner_of(request), chat, messages)
        return _json({"revision": await to_its_end(add)})

    async def delete_message(self, request: Request) -> Response:
        chat, message = id_in(request, "id"), id_in(request, "message")
        await to_its_end(self._store.chats.delete_message(owner_of(request), chat, message))
        return Response(status_code=204)

    async def export(self, request: Request) -> Response:
        headers = {**PRIVATE, "content-disposition": 'attachment; filename="chats.jsonl"'}
        return StreamingResponse(
            self._exported(owner_of(request)), headers=headers, media_type=JSON_LINES
        )

    async def _exported(self, owner: str) -> AsyncIterator[bytes]:
        async for part in self._store.changes.export(owner):
            yield part.encode()


def _changes(page: Page) -> bytes:
    head = encode({"revision": page.cursor.value, "more": page.more})[:-1].decode()
    lists = f',"chats":[{",".join(page.chats)}],"messages":[{",".join(page.messages)}]}}'
    return (head + lists).encode()


def _stale(request: Request, stale: StaleChat) -> Response:
    """With the chat as it is stored, so that its client need not ask for it."""
    if stale.current is None:
        message = "There is no such chat: write a new one with `If-None-Match: *`"
    else:
        message = "The chat has changed since, or is there already: `chat` has it as it is now"
    error = RequestError(ErrorKind.STALE, message, "if-match")
    status, body = envelope(error, request_id_of(request))
    current = (stale.current or "null").encode()
    content = encode(body)[:-1] + b',"chat":' + current + b"}"
    return Response(content, status, PRIVATE, "application/json")


def _json(value: Mapping[str, object]) -> Response:
    return Response(encode(value), headers=PRIVATE, media_type="application/json")
