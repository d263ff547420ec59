"""Responses and conversations as tests keep them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import func, select

from deployments.contract.errors import ErrorKind, Refused
from deployments.store.database import Database, store_url
from deployments.store.items import NewResponse, Recalled, StoredItem, Wanted
from deployments.store.limits import KeptLimits
from deployments.store.store import KeptStore
from deployments.store.tables import CONVERSATION, ITEM, KEPT, RESPONSE

OWNER = "name:anna"


def run(url: str, work: Callable[[KeptStore], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        async with kept(url, **limits) as store:
            await work(store)

    asyncio.run(main())


@asynccontextmanager
async def kept(url: str, **limits: int) -> AsyncIterator[KeptStore]:
    store = KeptStore(store_url(url), KeptLimits(**limits))
    try:
        yield store
    finally:
        await store.close()


def item(name: str, n_bytes: int = 10) -> StoredItem:
    return StoredItem(name, b'"%b"' % (b"x" * n_bytes))


def reserve_nothing(n_bytes: int) -> None:
    """No budget."""


async def put(
    store: KeptStore,
    name: str,
    previous: str | None = None,
    conversation: str | None = None,
    *,
    owner: str = OWNER,
    n_bytes: int = 10,
) -> bool:
    """A response of this name with one item in and one out."""
    wanted = Wanted(previous=previous, conversation=conversation)
    recalled = Recalled()
    if previous or conversation:
        recalled = await store.responses.recall(owner, wanted, reserve_nothing)
    given, output = (item(f"in_{name}", n_bytes),), (item(f"out_{name}", n_bytes),)
    new = NewResponse(id=name, body=b"{}", recalled=recalled, given=given, output=output)
    return await store.responses.put(owner, new)


async def earlier(
    store: KeptStore,
    previous: str | None = None,
    conversation: str | None = None,
    owner: str = OWNER,
) -> list[str]:
    wanted = Wanted(previous=previous, conversation=conversation)
    recalled = await store.responses.recall(owner, wanted, reserve_nothing)
    return [entry.id for entry in recalled.earlier]


async def inputs(store: KeptStore, name: str, owner: str = OWNER) -> list[str] | None:
    found = await store.responses.input_items(owner, name, lambda ids: range(len(ids)))
    return None if found is None else [entry.id for entry in found]


async def items(store: KeptStore, name: str, owner: str = OWNER) -> list[str] | None:
    found = await store.conversations.items(owner, name, lambda ids: range(len(ids)))
    return None if found is None else [entry.id for entry in found]


async def known(store: KeptStore, *ids: str, owner: str = OWNER) -> set[str]:
    recalled = await store.responses.recall(owner, Wanted(ids=ids), reserve_nothing)
    return set(recalled.known)


async def create(store: KeptStore, name: str, *ids: str, owner: str = OWNER) -> None:
    await store.conversations.create(owner, name, "{}", 1, [item(item_id) for item_id in ids])


async def counted(url: str) -> Any:
    """The counters of all owners, and what they should be: both by owner."""
    database = Database(store_url(url))
    queries = {
        "responses": select(RESPONSE.c.owner, func.count(RESPONSE.c.used)),
        "response_bytes": select(
            RESPONSE.c.owner, func.sum(RESPONSE.c.body_bytes + RESPONSE.c.item_bytes + 256)
        ),
        "conversations": select(CONVERSATION.c.owner, func.count(CONVERSATION.c.metadata)),
        "conversation_bytes": select(CONVERSATION.c.owner, func.sum(CONVERSATION.c.bytes)).where(
            CONVERSATION.c.metadata.is_not(None)
        ),
    }
    of_gone = select(CONVERSATION.c.owner, CONVERSATION.c.bytes).where(
        CONVERSATION.c.metadata.is_(None)
    )
    try:
        async with database.reading() as connection:
            rows = (await connection.execute(select(KEPT))).mappings().all()
            said = {row["owner"]: {name: row[name] for name in queries} for row in rows}
            true = {owner: dict.fromkeys(queries, 0) for owner in said}
            for name, query in queries.items():
                grouped = query.group_by(query.selected_columns[0])
                for owner, value in await connection.execute(grouped):
                    true[owner][name] = int(value)
            for owner, n_bytes in await connection.execute(of_gone):
                true[owner]["response_bytes"] += n_bytes
            return said, true
    finally:
        await database.close()


async def refusal(work: Awaitable[object]) -> ErrorKind:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.error.kind


async def rows(url: str) -> Sequence[int]:
    """How many responses, conversations and items there are, hidden ones too."""
    database = Database(store_url(url))
    try:
        async with database.reading() as connection:
            return [
                (await connection.execute(select(func.count()).select_from(table))).scalar_one()
                for table in (RESPONSE, CONVERSATION, ITEM)
            ]
    finally:
        await database.close()
