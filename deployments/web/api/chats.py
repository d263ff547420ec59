"""The endpoints of chats: what changed, and writes of chats and messages."""

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.error_bodies import llama_envelope
from deployments.ingress.generation.answer import while_connected
from deployments.ingress.http.app import request_id_of
from deployments.ingress.http.clients import owner_of
from deployments.ingress.http.paging import page_size
from deployments.ingress.http.sse import encode
from deployments.ingress.settings import IngressSettings
from deployments.serving.detached_tasks import to_its_end
from deployments.store.changes import Cursor, Page
from deployments.store.chats import StaleChat
from deployments.store.store import Store
from deployments.web.api.guard import Guard
from deployments.web.api.json_answer import JSON, PRIVATE, json_answer
from deployments.web.api.opening import StoreOpener
from deployments.web.api.requests import Bodies, id_in, made_from, wait_s
from deployments.web.api.schema import ChatBody, MessagesBody

DEFAULT_LIMIT, MAX_LIMIT = 200, 500  # rows of an answer
JSON_LINES = "application/jsonl"


class ChatEndpoints:
    def __init__(self, opener: StoreOpener, settings: IngressSettings, guard: Guard) -> None:
        self._opener = opener
        self._settings = settings
        self._guard = guard
        self._bodies = Bodies(settings)

    async def changes(self, request: Request) -> Response:
        store, owner, seconds = self._opener.store, owner_of(request), wait_s(request)
        cursor = Cursor.read(request.query_params.get("since", "0"))
        limit = page_size(request.query_params, DEFAULT_LIMIT, MAX_LIMIT)
        page = await to_its_end(store.changes.page(owner, cursor, limit))
        if page.is_empty and seconds:
            async with self._guard.waiting(request):
                changed = _changed(store, owner, page.cursor.revision, seconds)
                await while_connected(changed, request.receive)
            page = await to_its_end(store.changes.page(owner, page.cursor, limit))
        return Response(_changes(page), headers=PRIVATE, media_type=JSON)

    async def put_chat(self, request: Request) -> Response:
        chats, chat, base = self._opener.store.chats, id_in(request, "id"), made_from(request)
        fields = await self._bodies.read(request, ChatBody, ChatBody.fields)
        put = chats.put(owner_of(request), chat, fields, base)
        try:
            return json_answer({"revision": await to_its_end(put)})
        except StaleChat as stale:
            return _stale(request, stale)

    async def delete_chat(self, request: Request) -> Response:
        delete = self._opener.store.chats.delete(owner_of(request), id_in(request, "id"))
        await to_its_end(delete)
        return Response(status_code=204)

    async def add_messages(self, request: Request) -> Response:
        store, owner, chat = self._opener.store, owner_of(request), id_in(request, "id")
        messages = await self._bodies.read(
            request, MessagesBody, lambda body: [message.fields() for message in body.messages]
        )
        revision = await to_its_end(store.chats.add_messages(owner, chat, messages))
        digests = {sha256 for message in messages for sha256 in message.files}
        missing = await to_its_end(store.files.missing(owner, digests))
        return json_answer({"revision": revision, "missing_files": missing})

    async def delete_message(self, request: Request) -> Response:
        chats, owner = self._opener.store.chats, owner_of(request)
        delete = chats.delete_message(owner, id_in(request, "id"), id_in(request, "message"))
        await to_its_end(delete)
        return Response(status_code=204)

    async def export(self, request: Request) -> Response:
        headers = {**PRIVATE, "content-disposition": 'attachment; filename="chats.jsonl"'}
        lines = self._opener.store.changes.export(owner_of(request))
        return StreamingResponse(lines, headers=headers, media_type=JSON_LINES)


async def _changed(store: Store, owner: str, revision: int, seconds: int) -> None:
    """Ends when the owner has another revision, or when the time is over."""
    end = asyncio.get_running_loop().time() + seconds
    with suppress(TimeoutError), store.waits.waiting(owner) as event:
        while (await to_its_end(store.owners.state(owner))).revision == revision:
            async with asyncio.timeout_at(end):
                await event.wait()
            event.clear()


def _changes(page: Page) -> bytes:
    cursor = page.cursor
    said = {"revision": cursor.revision, "next": str(cursor), "more": page.more}
    head = encode(said)[:-1].decode()
    lists = f',"chats":[{",".join(page.chats)}],"messages":[{",".join(page.messages)}]}}'
    return (head + lists).encode()


def _stale(request: Request, stale: StaleChat) -> Response:
    """Returns a refusal with the chat as it is stored, so that its client need not ask for it."""
    if stale.current is None:
        message = "There is no such chat: write a new one with `If-None-Match: *`"
    else:
        message = "The chat has changed since, or is there already: `chat` has it as it is now"
    error = RequestError(ErrorKind.STALE, message, "if-match")
    status, body = llama_envelope(error, request_id_of(request))
    current = (stale.current or "null").encode()
    content = encode(body)[:-1] + b',"chat":' + current + b"}"
    return Response(content, status, PRIVATE, JSON)
