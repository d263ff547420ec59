"""Data that OpenAI's protocol keeps of an owner: counters, their lock, and rows that come and go.

A response has the items that its request gave and those of its output, and continues the items of
another response or of a conversation. So what is deleted or pushed out leaves its items to those
that continue it, and goes with the last of them.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, exists, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.store.database import Database, locked_row
from deployments.store.items import StoredItem
from deployments.store.limits import ROW_BYTES, KeptLimits
from deployments.store.rows import Row
from deployments.store.tables import CONVERSATION, ITEM, KEPT, RESPONSE


@dataclass(slots=True)
class Counters:
    responses: int = 0
    response_bytes: int = 0
    conversations: int = 0
    conversation_bytes: int = 0
    last_number: int = 0


@dataclass(slots=True)
class KeptWrite:
    """One transaction of one owner, which holds the owner's counters."""

    connection: AsyncConnection
    owner: str
    now: Counters

    def next_number(self) -> int:
        self.now.last_number += 1
        return self.now.last_number

    async def add_items(
        self,
        items: Sequence[StoredItem],
        outputs: Sequence[StoredItem],
        *,
        response: str | None = None,
        conversation: str | None = None,
    ) -> None:
        of = {"owner": self.owner, "response": response, "conversation": conversation}
        rows = [
            {
                **of,
                "number": self.next_number(),
                "id": item.id,
                "is_output": is_output,
                "is_referable": item.is_referable,
                "body": item.body.decode(),
                "size": size_of([item]),
            }
            for is_output, some in ((False, items), (True, outputs))
            for item in some
        ]
        if rows:
            await self.connection.execute(insert(ITEM), rows)

    async def drop_response(self, response_id: str) -> None:
        """Drops a response that can be found. Nobody finds it any more."""
        self.now.responses -= 1
        if not await self._is_continued(response_id):
            await self._remove_response(response_id)
            return
        this = _is(RESPONSE.c.owner, RESPONSE.c.id, self.owner, response_id)
        found = await self._one(select(RESPONSE.c.body_bytes).where(this))
        self.now.response_bytes -= found["body_bytes"]
        gone = {"used": None, "body": None, "body_bytes": 0}
        await self.connection.execute(update(RESPONSE).where(this).values(gone))

    async def drop_conversation(self, conversation_id: str) -> None:
        """Drops a conversation that can be found.

        What responses still have of it counts as theirs.
        """
        self.now.conversations -= 1
        this = _is(CONVERSATION.c.owner, CONVERSATION.c.id, self.owner, conversation_id)
        row = await self._one(select(CONVERSATION.c.bytes).where(this))
        self.now.conversation_bytes -= row["bytes"]
        self.now.response_bytes += row["bytes"]
        await self.connection.execute(update(CONVERSATION).where(this).values(metadata=None))
        await self._remove_if_unused(conversation_id)

    async def make_room(self, limits: KeptLimits) -> set[str]:
        """Drops the least recently used responses while there are too many. Returns their ids."""
        gone: set[str] = set()
        mine = and_(RESPONSE.c.owner == self.owner, RESPONSE.c.used.is_not(None))
        oldest = select(RESPONSE.c.id).where(mine).order_by(RESPONSE.c.used).limit(1)
        while (
            self.now.responses > limits.max_responses
            or self.now.response_bytes > limits.max_response_bytes
        ):
            first = (await self.connection.execute(oldest)).scalar_one_or_none()
            if first is None:
                break
            await self.drop_response(first)
            gone.add(first)
        return gone

    async def _is_continued(self, response_id: str) -> bool:
        return await self._exists(
            _is(RESPONSE.c.owner, RESPONSE.c.previous, self.owner, response_id)
        )

    async def _remove_response(self, response_id: str) -> None:
        """Removes it, and those before it that are gone already, if nothing else continues them."""
        current: str | None = response_id
        while current is not None:
            this = _is(RESPONSE.c.owner, RESPONSE.c.id, self.owner, current)
            row = await self._one(select(RESPONSE).where(this))
            await self.connection.execute(delete(RESPONSE).where(this))
            self.now.response_bytes -= ROW_BYTES + row["body_bytes"] + row["item_bytes"]
            own = _is(ITEM.c.owner, ITEM.c.response, self.owner, current)
            await self.connection.execute(delete(ITEM).where(own, ITEM.c.conversation.is_(None)))
            await self.connection.execute(update(ITEM).where(own).values(response=None))
            if row["conversation"] is not None:
                await self._remove_if_unused(row["conversation"])
            current = await self._unused(row["previous"])

    async def _unused(self, response_id: str | None) -> str | None:
        if response_id is None:
            return None
        this = _is(RESPONSE.c.owner, RESPONSE.c.id, self.owner, response_id)
        is_gone = await self._exists(and_(this, RESPONSE.c.used.is_(None)))
        return response_id if is_gone and not await self._is_continued(response_id) else None

    async def _remove_if_unused(self, conversation_id: str) -> None:
        this = _is(CONVERSATION.c.owner, CONVERSATION.c.id, self.owner, conversation_id)
        row = await self._one(select(CONVERSATION.c.metadata, CONVERSATION.c.bytes).where(this))
        users = _is(RESPONSE.c.owner, RESPONSE.c.conversation, self.owner, conversation_id)
        if row["metadata"] is not None or await self._exists(users):
            return
        await self.connection.execute(delete(CONVERSATION).where(this))
        self.now.response_bytes -= row["bytes"]
        own = _is(ITEM.c.owner, ITEM.c.conversation, self.owner, conversation_id)
        await self.connection.execute(delete(ITEM).where(own, ITEM.c.response.is_(None)))
        await self.connection.execute(update(ITEM).where(own).values(conversation=None))

    async def _exists(self, where: ColumnElement[bool]) -> bool:
        return bool((await self.connection.execute(select(exists().where(where)))).scalar_one())

    async def _one(self, query: Select[Any]) -> Row:
        row: Row = (await self.connection.execute(query)).mappings().one()
        return row


class KeptOwners:
    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def writing(self, owner: str) -> AsyncIterator[KeptWrite]:
        """A transaction, committed at the end."""
        async with self._database.writing(owner) as connection:
            before = await locked_row(connection, KEPT, KEPT.c.owner, owner)
            write = KeptWrite(connection, owner, Counters(**before))
            yield write
            after = asdict(write.now)
            if after != before:
                await connection.execute(update(KEPT).where(KEPT.c.owner == owner).values(after))


def size_of(items: Sequence[StoredItem]) -> int:
    """Bytes that count for the owner."""
    return sum(ROW_BYTES + len(item.body) + len(item.id.encode()) for item in items)


def _is(
    owner_column: ColumnElement[str], column: ColumnElement[Any], owner: str, value: str
) -> ColumnElement[bool]:
    return and_(owner_column == owner, column == value)
