"""Conversations of OpenAI's protocol: items in a row, which outlive the responses that added them.

They are kept until their owner deletes them, so more than the owner may keep is refused.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.store.database import Database
from deployments.store.item_rows import PART, chosen_items, listed_items, text_of
from deployments.store.items import Choose, StoredItem, no_conversation
from deployments.store.kept import KeptOwners, KeptWrite, size_of
from deployments.store.limits import ROW_BYTES, KeptLimits
from deployments.store.rows import Row
from deployments.store.tables import CONVERSATION, ITEM


class ConversationParams(NamedTuple):
    """The fields of a request that has items for a conversation, as errors name them."""

    conversation: str
    items: str


CONVERSATIONS_OWN = ConversationParams("id", "items")  # of the endpoints of conversations


class Conversations:
    def __init__(self, database: Database, owners: KeptOwners, limits: KeptLimits) -> None:
        self._database = database
        self._owners = owners
        self._limits = limits

    async def create(
        self, owner: str, conversation_id: str, metadata: str, at: int, items: Sequence[StoredItem]
    ) -> None:
        """metadata: JSON. at: the time, in seconds. Raises Refused."""
        async with self._owners.writing(owner) as write:
            if write.now.conversations >= self._limits.max_conversations:
                message = f"{self._limits.max_conversations:,} conversations are kept already"
                raise _full(message)
            row = {"owner": owner, "id": conversation_id, "created_at": at, "metadata": metadata}
            sizes = {"bytes": ROW_BYTES + len(metadata.encode()), "items": 0}
            await write.connection.execute(insert(CONVERSATION).values({**row, **sizes}))
            write.now.conversations += 1
            _grow(write, sizes["bytes"], self._limits)
            await admit_items(write, conversation_id, items, self._limits, CONVERSATIONS_OWN)
            await write.add_items(items, (), conversation=conversation_id)

    async def find(self, owner: str, conversation_id: str) -> Row | None:
        async with self._database.reading(owner) as connection:
            return await find_conversation(connection, owner, conversation_id)

    async def update(self, owner: str, conversation_id: str, metadata: str) -> Row | None:
        async with self._owners.writing(owner) as write:
            found = await find_conversation(write.connection, owner, conversation_id)
            if found is None:
                return None
            grown = len(metadata.encode()) - len(found["metadata"].encode())
            changed = {"metadata": metadata, "bytes": found["bytes"] + grown}
            this = _is_conversation(owner, conversation_id)
            await write.connection.execute(update(CONVERSATION).where(this).values(changed))
            _grow(write, grown, self._limits)
            return await find_conversation(write.connection, owner, conversation_id)

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Whether it was there. Responses that are still stored keep its items."""
        async with self._owners.writing(owner) as write:
            if await find_conversation(write.connection, owner, conversation_id) is None:
                return False
            await write.drop_conversation(conversation_id)
            await write.make_room(self._limits)
            return True

    async def add(self, owner: str, conversation_id: str, items: Sequence[StoredItem]) -> None:
        """Raises Refused."""
        async with self._owners.writing(owner) as write:
            await admit_items(write, conversation_id, items, self._limits, CONVERSATIONS_OWN)
            await write.add_items(items, (), conversation=conversation_id)

    async def items(
        self, owner: str, conversation_id: str, choose: Choose
    ) -> list[StoredItem] | None:
        """Returns the chosen items, or None without the conversation."""
        async with self._database.reading(owner) as connection:
            if await find_conversation(connection, owner, conversation_id) is None:
                return None
            found = await listed_items(connection, in_conversation(owner, conversation_id))
            return await chosen_items(connection, owner, found, choose)

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> Row | None:
        """The conversation; None if it has no such item. A response that has it keeps it. Raises
        Refused for a conversation that is not there.
        """
        async with self._owners.writing(owner) as write:
            found = await find_conversation(write.connection, owner, conversation_id)
            if found is None:
                raise no_conversation(conversation_id, CONVERSATIONS_OWN.conversation)
            mine = and_(in_conversation(owner, conversation_id), ITEM.c.id == text_of(item_id))
            query = select(ITEM.c.number, ITEM.c.size, ITEM.c.response).where(mine)
            item = (await write.connection.execute(query)).mappings().one_or_none()
            if item is None:
                return None
            if item["response"] is None:
                await write.connection.execute(delete(ITEM).where(mine))
            else:
                await write.connection.execute(update(ITEM).where(mine).values(conversation=None))
            less = {"bytes": found["bytes"] - item["size"], "items": found["items"] - 1}
            this = _is_conversation(owner, conversation_id)
            await write.connection.execute(update(CONVERSATION).where(this).values(less))
            write.now.conversation_bytes -= item["size"]
            return found


async def find_conversation(
    connection: AsyncConnection, owner: str, conversation_id: str
) -> Row | None:
    """One that was not deleted."""
    live = and_(_is_conversation(owner, conversation_id), CONVERSATION.c.metadata.is_not(None))
    return (await connection.execute(select(CONVERSATION).where(live))).mappings().one_or_none()


async def admit_items(
    write: KeptWrite,
    conversation_id: str,
    items: Sequence[StoredItem],
    limits: KeptLimits,
    params: ConversationParams,
) -> None:
    """Counts what a conversation is about to get. Raises Refused."""
    found = await find_conversation(write.connection, write.owner, conversation_id)
    if found is None:
        raise no_conversation(conversation_id, params.conversation)
    if found["items"] + len(items) > limits.max_items:
        raise _full(f"A conversation has at most {limits.max_items:,} items")
    twice = await _first_twice(write, conversation_id, [item.id for item in items])
    if twice is not None:
        raise refused(f"The conversation would have the item {twice!r} twice", params.items)
    n_bytes = size_of(items)
    more = {"bytes": found["bytes"] + n_bytes, "items": found["items"] + len(items)}
    this = _is_conversation(write.owner, conversation_id)
    await write.connection.execute(update(CONVERSATION).where(this).values(more))
    _grow(write, n_bytes, limits)


async def _first_twice(write: KeptWrite, conversation_id: str, ids: Sequence[str]) -> str | None:
    twice = [item_id for item_id, n in Counter(ids).items() if n > 1]
    for start in range(0, len(ids), PART):
        mine = in_conversation(write.owner, conversation_id)
        query = select(ITEM.c.id).where(mine, ITEM.c.id.in_(ids[start : start + PART]))
        twice += (await write.connection.execute(query)).scalars().all()
    return twice[0] if twice else None


def _grow(write: KeptWrite, n_bytes: int, limits: KeptLimits) -> None:
    write.now.conversation_bytes += n_bytes
    if n_bytes > 0 and write.now.conversation_bytes > limits.max_conversation_bytes:
        raise _full(f"Conversations have at most {limits.max_conversation_bytes:,} bytes together")


def _full(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.STORAGE_FULL, f"{message}: delete some of them")


def _is_conversation(owner: str, conversation_id: str) -> ColumnElement[bool]:
    this = CONVERSATION.c.id == text_of(conversation_id)
    return and_(CONVERSATION.c.owner == owner, this)


def in_conversation(owner: str, conversation_id: str) -> ColumnElement[bool]:
    return and_(ITEM.c.owner == owner, ITEM.c.conversation == text_of(conversation_id))
