"""Reads items: those that are chosen of a list, and those that a request refers to."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.store.items import Choose, Reserve, StoredItem
from deployments.store.rows import Row
from deployments.store.tables import CONVERSATION, ITEM, RESPONSE

PART = 500  # ids of one statement


class Listed(NamedTuple):
    number: int
    id: str
    size: int  # bytes


async def reserved_items(
    connection: AsyncConnection, where: ColumnElement[bool], reserve: Reserve
) -> Sequence[Row]:
    """Rows of items, in their order, after `reserve` took their bytes of the budget."""
    total = select(func.coalesce(func.sum(ITEM.c.size), 0)).where(where)
    reserve(int((await connection.execute(total)).scalar_one()))
    return await _rows(connection, select(ITEM).where(where))


async def listed_items(connection: AsyncConnection, where: ColumnElement[bool]) -> list[Listed]:
    """Items in their order."""
    query = select(ITEM.c.number, ITEM.c.id, ITEM.c.size).where(where)
    return sorted(Listed(*row) for row in await connection.execute(query))


async def chosen_items(
    connection: AsyncConnection, owner: str, found: Sequence[Listed], choose: Choose
) -> list[StoredItem]:
    chosen = choose([(item.id, item.size) for item in found])
    wanted = [found[index].number for index in chosen]
    query = select(ITEM).where(ITEM.c.owner == owner, ITEM.c.number.in_(wanted))
    by_number = {row["number"]: item_of(row) for row in await _rows(connection, query)}
    return [by_number[number] for number in wanted if number in by_number]


async def known_items(
    connection: AsyncConnection, owner: str, ids: Sequence[str], reserve: Reserve
) -> dict[str, StoredItem]:
    """Reads the items that may be referred to, by their ids: of several copies the newest."""
    found: dict[str, StoredItem] = {}
    distinct = list(dict.fromkeys(map(text_of, ids)))
    for start in range(0, len(distinct), PART):
        among = ITEM.c.id.in_(distinct[start : start + PART])
        where = and_(ITEM.c.owner == owner, among, ITEM.c.is_referable, _can_be_found())
        newest = select(func.max(ITEM.c.number)).where(where).group_by(ITEM.c.id)
        numbers = (await connection.execute(newest)).scalars().all()
        copies = and_(ITEM.c.owner == owner, ITEM.c.number.in_(numbers))
        rows = await reserved_items(connection, copies, reserve)
        found.update((row["id"], item_of(row)) for row in rows)
    return found


def _can_be_found() -> ColumnElement[bool]:
    """Whether the item's response or its conversation is."""
    of_response = and_(RESPONSE.c.owner == ITEM.c.owner, RESPONSE.c.id == ITEM.c.response)
    of_conversation = and_(
        CONVERSATION.c.owner == ITEM.c.owner, CONVERSATION.c.id == ITEM.c.conversation
    )
    return or_(
        exists().where(of_response, RESPONSE.c.used.is_not(None)),
        exists().where(of_conversation, CONVERSATION.c.metadata.is_not(None)),
    )


def text_of(name: str) -> str:
    """An id that a client said, as it may be asked for; "", which is no id, for one that can't be
    there: Postgres has no text with a zero byte.
    """
    return "" if "\0" in name else name


def item_of(row: Row) -> StoredItem:
    return StoredItem(row["id"], row["body"].encode(), row["is_referable"])


async def _rows(connection: AsyncConnection, query: Select[Any]) -> Sequence[Row]:
    """Reads the rows of items, and sorts them by their numbers here.

    SQLite would follow the index of the numbers, past all that an owner has.
    """
    found: Sequence[Row] = (await connection.execute(query)).mappings().all()
    return sorted(found, key=lambda row: int(row["number"]))
