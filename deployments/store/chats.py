"""Writes of chats and messages. A message never changes, and what is deleted leaves a tombstone.

Every write may be repeated: what is there already is no change.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from deployments.contract.errors import ErrorKind, Refused
from deployments.store.files import drop_unused
from deployments.store.limits import ROW_BYTES, StoreLimits, too_much
from deployments.store.owners import Owners, OwnerWrite
from deployments.store.rows import ChatFields, MessageFields, Row, chat_json
from deployments.store.tables import ATTACHMENT, CHAT, MESSAGE

ONLY_NEW = 0  # as the revision that a write was made from: there is no such chat yet
PART = 500  # rows of one statement


class StaleChat(Exception):
    """A write was made from another revision than the one that is stored.

    `current` is the JSON of the chat; None if there is none.
    """

    def __init__(self, current: str | None) -> None:
        super().__init__()
        self.current = current


class Chats:
    def __init__(self, owners: Owners, limits: StoreLimits) -> None:
        self._owners = owners
        self._limits = limits

    async def put(self, owner: str, chat: str, fields: ChatFields, made_from: int) -> int:
        """The chat's revision. Raises StaleChat, and Refused for a chat that was deleted."""
        if fields.size - ROW_BYTES > self._limits.max_message_bytes:
            limit = self._limits.max_message_bytes
            raise too_much("A chat of so many bytes", limit, "max_message_bytes")
        async with self._owners.writing(owner) as write:
            found = await _chat(write, chat)
            if found is None:
                return await self._add(write, chat, fields, made_from)
            if found["deleted_at"] is not None:
                raise Refused.of_kind(ErrorKind.GONE, f"The chat {chat} was deleted", "id")
            if all(found[name] == value for name, value in fields.row().items()):
                return int(found["revision"])
            if made_from != found["revision"]:
                raise StaleChat(chat_json(found))
            write.grow(fields.size - found["size"])
            revision = write.next_revision()
            changed = {**fields.row(), "size": fields.size, "revision": revision}
            await write.connection.execute(
                update(CHAT).where(_is_chat(write, chat)).values(changed)
            )
            return revision

    async def _add(self, write: OwnerWrite, chat: str, fields: ChatFields, made_from: int) -> int:
        if made_from != ONLY_NEW:
            raise StaleChat(None)
        live = select(func.count()).where(CHAT.c.owner == write.owner, CHAT.c.deleted_at.is_(None))
        if (await write.connection.execute(live)).scalar_one() >= self._limits.max_chats:
            raise too_much("One chat more", self._limits.max_chats, "max_chats")
        write.grow(fields.size)
        row = {"owner": write.owner, "id": chat, "size": fields.size}
        revision = write.next_revision()
        values = {**row, **fields.row(), "revision": revision}
        await write.connection.execute(insert(CHAT).values(values))
        return revision

    async def delete(self, owner: str, chat: str) -> None:
        """Deletes a chat, its messages, and the files that no other message has."""
        async with self._owners.writing(owner) as write:
            found = await _chat(write, chat)
            if found is None or found["deleted_at"] is not None:
                return
            of_chat = and_(MESSAGE.c.owner == owner, MESSAGE.c.chat == chat)
            total = select(func.coalesce(func.sum(MESSAGE.c.size), 0)).where(of_chat)
            freed = int((await write.connection.execute(total)).scalar_one())
            files = await _files_of(write, ATTACHMENT.c.chat == chat)
            await write.connection.execute(delete(MESSAGE).where(of_chat))
            await drop_unused(write, files)
            write.grow(ROW_BYTES - found["size"] - freed)
            gone = {"title": "", "leaf": None, "body": "", "size": ROW_BYTES}
            gone |= {"deleted_at": now_ms(), "revision": write.next_revision()}
            await write.connection.execute(update(CHAT).where(_is_chat(write, chat)).values(gone))

    async def add_messages(self, owner: str, chat: str, messages: Sequence[MessageFields]) -> int:
        """Each comes after its parent. Returns the last revision of the owner. Raises Refused."""
        self._check_sizes(messages)
        async with self._owners.writing(owner) as write:
            await _check_there(write, chat)
            known = await _known(write, chat, messages)
            new = _new_messages(messages, known)
            await self._check_number(write, chat, len(new))
            if new:
                await _insert(write, chat, new)
            return write.revision

    def _check_sizes(self, messages: Sequence[MessageFields]) -> None:
        limit = self._limits.max_message_bytes
        for index, message in enumerate(messages):
            if len(message.body.encode()) > limit:
                what = "A message of so many bytes"
                raise too_much(what, limit, "max_message_bytes", f"messages[{index}]")

    async def _check_number(self, write: OwnerWrite, chat: str, n_new: int) -> None:
        if not n_new:
            return
        limit = self._limits.max_messages
        live = and_(_in_chat(write, chat), MESSAGE.c.deleted_at.is_(None))
        query = select(func.count()).select_from(MESSAGE).where(live)
        if (await write.connection.execute(query)).scalar_one() + n_new > limit:
            raise too_much("So many messages in a chat", limit, "max_messages", "messages")

    async def delete_message(self, owner: str, chat: str, message: str) -> None:
        """Deletes a message with all below it."""
        async with self._owners.writing(owner) as write:
            gone = await _live_below(write, chat, message)
            if not gone:
                return
            at, freed = now_ms(), sum(row["size"] for row in gone)
            files: set[str] = set()
            for start in range(0, len(gone), PART):
                ids = [row["id"] for row in gone[start : start + PART]]
                mine = and_(ATTACHMENT.c.chat == chat, ATTACHMENT.c.message.in_(ids))
                files |= await _files_of(write, mine)
                await write.connection.execute(
                    delete(ATTACHMENT).where(ATTACHMENT.c.owner == owner, mine)
                )
            await write.connection.execute(
                update(MESSAGE)
                .where(_in_chat(write, chat), MESSAGE.c.id == bindparam("gone"))
                .values(body="", size=ROW_BYTES, deleted_at=at, revision=bindparam("at")),
                [{"gone": row["id"], "at": write.next_revision()} for row in gone],
            )
            await drop_unused(write, files)
            write.grow(len(gone) * ROW_BYTES - freed)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_messages(
    messages: Sequence[MessageFields], known: Mapping[str, Row]
) -> list[MessageFields]:
    """Returns the messages that are not stored. Raises Refused."""
    new: dict[str, MessageFields] = {}
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message.id in new:
            if message != new[message.id]:
                raise _other_content(message.id, path)
        elif message.id in known:
            _check_same(message, known[message.id], path)
        else:
            if message.parent is not None and message.parent not in new:
                _check_parent(message.parent, known.get(message.parent), path)
            new[message.id] = message
    return list(new.values())


def _check_same(message: MessageFields, stored: Row, path: str) -> None:
    """Who was offline may send what was deleted meanwhile: deleting wins."""
    if stored["deleted_at"] is not None:
        return
    same = _is_alike(message, stored) and all(
        stored[name] == value for name, value in message.row().items()
    )
    if not same:
        raise _other_content(message.id, path)


def _check_parent(parent: str, stored: Row | None, path: str) -> None:
    if stored is None:
        message = f"`{path}.parent`: there is no message {parent} in this chat"
        raise Refused.of_kind(ErrorKind.INVALID_REQUEST, message, f"{path}.parent")
    if stored["deleted_at"] is not None:
        message = f"`{path}.parent`: the message {parent} was deleted"
        raise Refused.of_kind(ErrorKind.GONE, message, f"{path}.parent")


def _other_content(message: str, path: str) -> Refused:
    text = (
        f"`{path}`: the message {message} is stored with other content, and messages don't change"
    )
    return Refused.of_kind(ErrorKind.CONFLICT, text, path)


async def _insert(write: OwnerWrite, chat: str, new: Sequence[MessageFields]) -> None:
    write.grow(sum(message.size for message in new))
    own = {"owner": write.owner, "chat": chat}
    rows = [
        {**own, **message.row(), "size": message.size, "revision": write.next_revision()}
        for message in new
    ]
    await write.connection.execute(insert(MESSAGE), rows)
    files = [
        {**own, "message": message.id, "sha256": sha256}
        for message in new
        for sha256 in sorted(message.files)
    ]
    if files:
        await write.connection.execute(insert(ATTACHMENT), files)


async def _check_there(write: OwnerWrite, chat: str) -> None:
    query = select(CHAT.c.deleted_at).where(_is_chat(write, chat))
    found = (await write.connection.execute(query)).one_or_none()
    if found is None or found[0] is not None:
        why = "There is no chat" if found is None else "Deleted: the chat"
        raise Refused.of_kind(ErrorKind.NOT_FOUND, f"{why} {chat}", "id")


async def _known(write: OwnerWrite, chat: str, messages: Sequence[MessageFields]) -> dict[str, Row]:
    """Reads what is stored of the messages and their parents, by id.

    These are ids, sizes and when they were deleted, and all of those that may be equal to what was
    sent.
    """
    ids = {message.id for message in messages} | {
        message.parent for message in messages if message.parent is not None
    }
    heads = select(MESSAGE.c.id, MESSAGE.c.size, MESSAGE.c.deleted_at)
    known = await _by_id(write, heads.where(_in_chat(write, chat), MESSAGE.c.id.in_(ids)))
    alike = {
        message.id
        for message in messages
        if message.id in known and _is_alike(message, known[message.id])
    }
    whole = select(MESSAGE).where(_in_chat(write, chat), MESSAGE.c.id.in_(alike))
    return {**known, **await _by_id(write, whole)}


def _is_alike(message: MessageFields, stored: Row) -> bool:
    return stored["deleted_at"] is None and bool(stored["size"] == message.size)


async def _by_id(write: OwnerWrite, query: Select[Any]) -> dict[str, Row]:
    return {row["id"]: row for row in (await write.connection.execute(query)).mappings()}


async def _live_below(write: OwnerWrite, chat: str, message: str) -> Sequence[Row]:
    """The message and all below it that are not deleted: id and size."""
    columns = (MESSAGE.c.id, MESSAGE.c.size, MESSAGE.c.deleted_at)
    mine = _in_chat(write, chat)
    below = select(*columns).where(mine, MESSAGE.c.id == message).cte("below", recursive=True)
    below = below.union_all(select(*columns).where(mine, MESSAGE.c.parent == below.c.id))
    query = select(below.c.id, below.c.size).where(below.c.deleted_at.is_(None))
    return (await write.connection.execute(query)).mappings().all()


async def _files_of(write: OwnerWrite, where: ColumnElement[bool]) -> set[str]:
    query = select(ATTACHMENT.c.sha256).where(ATTACHMENT.c.owner == write.owner, where)
    return set((await write.connection.execute(query)).scalars())


async def _chat(write: OwnerWrite, chat: str) -> Row | None:
    query = select(CHAT).where(_is_chat(write, chat))
    return (await write.connection.execute(query)).mappings().one_or_none()


def _is_chat(write: OwnerWrite, chat: str) -> ColumnElement[bool]:
    return and_(CHAT.c.owner == write.owner, CHAT.c.id == chat)


def _in_chat(write: OwnerWrite, chat: str) -> ColumnElement[bool]:
    return and_(MESSAGE.c.owner == write.owner, MESSAGE.c.chat == chat)
