"""The changes of an owner's chats since a cursor, in pages, and all chats for an export.

A cursor is a revision N: its reader has all up to N. It begins at 0. At the first time the newest
rows come first: the cursor "N-M" is of a reader that has N down to M, and not yet what is below M.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Table, and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.serving.detached_tasks import to_its_end
from deployments.store.database import Database
from deployments.store.owners import OwnerState, read_state
from deployments.store.rows import Row, chat_json, message_json
from deployments.store.tables import CHAT, MESSAGE

CURSOR = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
MAX_PAGE_BYTES = 8 << 20  # after which no other row is begun
EXPORT_ROWS = 100  # that are held at once, at most

KeyT = TypeVar("KeyT", int, str)


@dataclass(frozen=True, slots=True)
class Cursor:
    """`down_to`: None for one that goes forward."""

    revision: int
    down_to: int | None = None

    @classmethod
    def read(cls, text: str) -> "Cursor":
        """Raises Refused."""
        found = CURSOR.fullmatch(text)
        if found is None:
            raise refused("`since` must be the `next` of an earlier answer, or 0", "since")
        return cls(int(found[1]), None if found[2] is None else int(found[2]))

    def __str__(self) -> str:
        """Returns the cursor as answers have it."""
        return f"{self.revision}" if self.down_to is None else f"{self.revision}-{self.down_to}"


@dataclass(frozen=True, slots=True)
class Page:
    """Chats and messages as JSON. `cursor`: where the next page begins."""

    cursor: Cursor
    more: bool
    chats: Sequence[str] = ()
    messages: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.chats or self.messages or self.more)


class Changes:
    def __init__(self, database: Database, page_bytes: int = MAX_PAGE_BYTES) -> None:
        self._database = database
        self._page_bytes = page_bytes

    async def page(self, owner: str, cursor: Cursor, limit: int) -> Page:
        """At most `limit` rows. Raises Refused for a cursor that is too old."""
        async with self._database.reading(owner) as connection:
            # Before the rows: what is committed up to this revision they show.
            state = await read_state(connection, owner)
            _check_age(cursor, state)
            if cursor.revision == 0 and state.revision > 0:
                cursor = Cursor(state.revision, state.revision + 1)
            if cursor.down_to is None:
                return await self._forward(connection, owner, cursor, limit, state)
            return await self._backward(connection, owner, cursor, limit)

    async def _forward(
        self,
        connection: AsyncConnection,
        owner: str,
        cursor: Cursor,
        limit: int,
        state: OwnerState,
    ) -> Page:
        if state.revision == cursor.revision:
            return Page(cursor, more=False)
        found = []
        for table in (CHAT, MESSAGE):
            where = _above(table, owner, cursor.revision, state.revision)
            found += await _sizes(connection, table.c.revision, where, table.c.revision, limit + 1)
        kept, more = self._cut(sorted(found), limit)
        last = kept[-1][0] if more else state.revision
        shown = [_above(table, owner, cursor.revision, last) for table in (CHAT, MESSAGE)]
        return await _page(connection, Cursor(last), more, shown)

    async def _backward(
        self, connection: AsyncConnection, owner: str, cursor: Cursor, limit: int
    ) -> Page:
        """Reads a page without tombstones: its reader has nothing yet."""
        below = cursor.down_to or 0
        found = []
        for table in (CHAT, MESSAGE):
            where = _live(table, owner, 0, below - 1)
            order = table.c.revision.desc()
            found += await _sizes(connection, table.c.revision, where, order, limit + 1)
        kept, more = self._cut(sorted(found, reverse=True), limit)
        first = kept[-1][0] if more else 1
        shown = [_live(table, owner, first - 1, below - 1) for table in (CHAT, MESSAGE)]
        following = Cursor(cursor.revision, first) if more else Cursor(cursor.revision)
        return await _page(connection, following, more, shown)

    def _cut(
        self, rows: Sequence[tuple[KeyT, int]], limit: int
    ) -> tuple[Sequence[tuple[KeyT, int]], bool]:
        """Returns the rows of one page, and whether there are more. Rows are key and size."""
        total = 0
        for index, (_, size) in enumerate(rows):
            total += size
            if index == limit or (index and total > self._page_bytes):
                return rows[:index], True
        return rows, False

    async def export(self, owner: str) -> AsyncIterator[str]:
        """JSON lines, in parts: a chat with its messages is a line. What changes meanwhile may be
        there or not. Between two parts no connection is held.
        """
        async for chat in self._rows(owner, CHAT, CHAT.c.id):
            yield f'{{"chat":{chat_json(chat)},"messages":['
            comma, of_chat = "", MESSAGE.c.chat == chat["id"]
            # Parents first, as that is the order in which they came.
            async for message in self._rows(owner, MESSAGE, MESSAGE.c.revision, of_chat):
                yield comma + message_json(message)
                comma = ","
            yield "]}\n"

    async def _rows(
        self, owner: str, table: Table, key: Column[Any], *where: ColumnElement[bool]
    ) -> AsyncIterator[Row]:
        """Yields rows in the order of `key`. The rows held at once are bounded as a page is."""
        live = and_(table.c.owner == owner, table.c.deleted_at.is_(None), *where)
        rows = await to_its_end(self._some(owner, key, live))
        while rows:
            for row in rows:
                yield row
            following = and_(live, key > rows[-1][key.name])
            rows = await to_its_end(self._some(owner, key, following))

    async def _some(
        self, owner: str, key: Column[Any], where: ColumnElement[bool]
    ) -> Sequence[Row]:
        async with self._database.reading(owner) as connection:
            found = await _sizes(connection, key, where, key, EXPORT_ROWS)
            if not found:
                return []
            kept, _ = self._cut(found, EXPORT_ROWS)
            query = select(key.table).where(where, key <= kept[-1][0]).order_by(key)
            return (await connection.execute(query)).mappings().all()


def _check_age(cursor: Cursor, state: OwnerState) -> None:
    """A cursor above all revisions is of a database that was put back to an earlier time."""
    is_first = cursor.revision == 0
    if not is_first and not state.swept <= cursor.revision <= state.revision:
        message = "`since` is too old: begin again with 0"
        raise Refused.of_kind(ErrorKind.GONE, message, "since")


def _above(table: Table, owner: str, low: int, high: int) -> ColumnElement[bool]:
    revision = table.c.revision
    return (table.c.owner == owner) & (revision > low) & (revision <= high)


def _live(table: Table, owner: str, low: int, high: int) -> ColumnElement[bool]:
    return _above(table, owner, low, high) & table.c.deleted_at.is_(None)


async def _sizes(
    connection: AsyncConnection,
    key: Column[KeyT],
    where: ColumnElement[bool],
    order: ColumnElement[Any],
    limit: int,
) -> list[tuple[KeyT, int]]:
    query = select(key, key.table.c.size).where(where).order_by(order).limit(limit)
    return [(value, size) for value, size in await connection.execute(query)]


async def _page(
    connection: AsyncConnection, cursor: Cursor, more: bool, where: Sequence[ColumnElement[bool]]
) -> Page:
    chats, messages = [
        (await connection.execute(select(table).where(term).order_by(table.c.revision))).mappings()
        for table, term in zip((CHAT, MESSAGE), where, strict=True)
    ]
    return Page(
        cursor, more, [chat_json(row) for row in chats], [message_json(m) for m in messages]
    )
