"""The routes of conversations and their items."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.http.body import parse_json, read_body
from deployments.ingress.http.clients import connection_of, owner_of
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.sse import encode
from deployments.ingress.http.validation import parse
from deployments.ingress.off_loop import BodyWork
from deployments.ingress.routes.service import Service, reserve_of
from deployments.openai.conversations.schema import (
    ConversationBody,
    ConversationChange,
    ItemsBody,
    with_paths,
)
from deployments.openai.responses.database_store import Call, DatabaseStore
from deployments.openai.responses.input import given_items, referred_ids, stored_item
from deployments.openai.responses.item_pages import (
    QUERY,
    ItemPage,
    check_include,
    json_answer,
    list_body,
)
from deployments.openai.responses.items import Item, ReferenceItem, new_id
from deployments.openai.responses.store import no_conversations
from deployments.store.items import Recalled, StoredItem, Wanted, no_conversation
from deployments.store.rows import Row, canonical

ALL = "/v1/conversations"
ONE, ITEMS = f"{ALL}/{{id}}", f"{ALL}/{{id}}/items"
ITEM = f"{ITEMS}/{{item_id}}"

BodyT = TypeVar("BodyT", bound=BaseModel)
ValueT = TypeVar("ValueT")
GivenItems = list[Item | ReferenceItem] | None


@dataclass(frozen=True, slots=True)
class ConversationEndpoints:
    """The endpoints of conversations. Without a store all requests are refused."""

    service: Service
    store: DatabaseStore | None

    async def create(self, request: Request) -> Response:
        work, asked = await self._body(request, ConversationBody)
        items = await self._items(request, work, asked.items)
        metadata, conversation_id = canonical(asked.metadata or {}), new_id("conv")
        owner, at = owner_of(request), int(time.time())
        await self._write(
            request,
            lambda kept: kept.conversations.create(owner, conversation_id, metadata, at, items),
        )
        return json_answer(_described(conversation_id, at, metadata))

    async def retrieve(self, request: Request) -> Response:
        owner, name = _named(request)
        found = await self._read(request, lambda kept: kept.conversations.find(owner, name))
        return _conversation(found, name)

    async def update(self, request: Request) -> Response:
        _, asked = await self._body(request, ConversationChange)
        owner, name = _named(request)
        metadata = canonical(asked.metadata or {})
        found = await self._write(
            request, lambda kept: kept.conversations.update(owner, name, metadata)
        )
        return _conversation(found, name)

    async def delete(self, request: Request) -> Response:
        owner, name = _named(request)
        if not await self._write(request, lambda kept: kept.conversations.delete(owner, name)):
            raise no_conversation(name, "id")
        return json_answer(encode({"id": name, "object": "conversation.deleted", "deleted": True}))

    async def add_items(self, request: Request) -> Response:
        check_include(request.query_params)
        work, asked = await self._body(request, ItemsBody)
        owner, name = _named(request)
        items = await self._items(request, work, asked.items)
        await self._write(request, lambda kept: kept.conversations.add(owner, name, items))
        return json_answer(list_body(items, has_more=False))

    async def list_items(self, request: Request) -> Response:
        owner, name = _named(request)
        page = ItemPage(request.query_params)
        found = await self._read(request, lambda kept: kept.conversations.items(owner, name, page))
        if found is None:
            raise no_conversation(name, "id")
        return json_answer(page.body(found))

    async def retrieve_item(self, request: Request) -> Response:
        check_include(request.query_params)
        owner, name = _named(request)
        item_id: str = request.path_params["item_id"]

        def choose(listed: Sequence[tuple[str, int]]) -> Sequence[int]:
            return [index for index, (listed_id, _) in enumerate(listed) if listed_id == item_id]

        found = await self._read(
            request, lambda kept: kept.conversations.items(owner, name, choose)
        )
        if found is None:
            raise no_conversation(name, "id")
        if not found:
            raise _no_item(item_id)
        return json_answer(found[0].body)

    async def delete_item(self, request: Request) -> Response:
        owner, name = _named(request)
        item_id: str = request.path_params["item_id"]
        found = await self._write(
            request, lambda kept: kept.conversations.delete_item(owner, name, item_id)
        )
        if found is None:
            raise _no_item(item_id)
        return _conversation(found, name)

    async def _body(self, request: Request, schema: type[BodyT]) -> tuple[BodyWork, BodyT]:
        body = await read_body(request, self.service.settings)
        work = BodyWork(self.service.off_loop, len(body), self._client(request))
        return work, await work.run(lambda: parse(schema, parse_json(body)))

    async def _items(self, request: Request, work: BodyWork, given: GivenItems) -> list[StoredItem]:
        """Returns the items as they are to be stored. What they refer to is copied."""
        paths = with_paths(given)
        wanted = Wanted(ids=referred_ids(paths))
        recalled = Recalled()
        if wanted.ids:
            owner, reserve = owner_of(request), reserve_of(request, work)
            recalled = await self._read(
                request, lambda kept: kept.responses.recall(owner, wanted, reserve)
            )
        return await work.run(
            lambda: [stored_item(item, recalled) for _, item in given_items(paths, recalled)]
        )

    async def _read(self, request: Request, call: Call[ValueT]) -> ValueT:
        return await self._opened.read(self._client(request), call)

    async def _write(self, request: Request, call: Call[ValueT]) -> ValueT:
        return await self._opened.write(self._client(request), call)

    @property
    def _opened(self) -> DatabaseStore:
        if self.store is None:
            raise no_conversations()
        return self.store

    def _client(self, request: Request) -> str:
        return connection_of(request, sees_peers=self.service.settings.sees_peers)


def conversation_routes(service: Service, store: DatabaseStore | None) -> list[Route]:
    served = ConversationEndpoints(service, store)
    include = ("include",)
    return [
        _route(ALL, served.create, "POST", body=ConversationBody),
        _route(ONE, served.retrieve, "GET"),
        _route(ONE, served.update, "POST", body=ConversationChange),
        _route(ONE, served.delete, "DELETE"),
        _route(ITEMS, served.add_items, "POST", body=ItemsBody, query=include),
        _route(ITEMS, served.list_items, "GET", query=QUERY),
        _route(ITEM, served.retrieve_item, "GET", query=include),
        _route(ITEM, served.delete_item, "DELETE"),
    ]


def _route(
    path: str,
    endpoint: Callable[..., object],
    method: str,
    *,
    body: type[BaseModel] | None = None,
    query: Sequence[str] = (),
) -> Route:
    return DocumentedRoute(
        path,
        endpoint,
        methods=[method],
        name=f"{endpoint.__name__}_of_conversations",
        tag="Conversations",
        body=body,
        query=query,
        refusals=() if body is None else [ErrorKind.STORAGE_FULL],
    )


def _named(request: Request) -> tuple[str, str]:
    """The owner, and the id of the conversation."""
    return owner_of(request), request.path_params["id"]


def _conversation(found: Row | None, name: str) -> Response:
    if found is None:
        raise no_conversation(name, "id")
    return json_answer(_described(found["id"], found["created_at"], found["metadata"]))


def _described(conversation_id: str, at: int, metadata: str) -> bytes:
    head = {"id": conversation_id, "object": "conversation", "created_at": at}
    return encode({**head, "metadata": json.loads(metadata)})


def _no_item(item_id: str) -> Refused:
    message = f"There is no item {item_id!r} in this conversation"
    return Refused.of_kind(ErrorKind.NOT_FOUND, message, "item_id")
