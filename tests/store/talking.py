"""Chats and messages as tests write them."""

import json
from typing import Any

from deployments.store.changes import Cursor
from deployments.store.chats import ONLY_NEW
from deployments.store.rows import ChatFields, MessageFields, canonical
from deployments.store.store import Store

OWNER = "name:anna"
CHAT = "01890000-0000-7000-8000-000000000000"


def identifier(number: int) -> str:
    return f"01890000-0000-7000-8000-{number:012x}"


def chat_fields(title: str = "A chat", **fields: Any) -> ChatFields:
    known: dict[str, Any] = {
        "title": title,
        "leaf": None,
        "pinned": False,
        "created_at": 1,
        "updated_at": 1,
        "body": canonical({"model": None, "system": "", "settings": {}}),
    }
    return ChatFields(**{**known, **fields})


def message_fields(
    number: int, parent: int | None = None, text: str = "Hello", **fields: Any
) -> MessageFields:
    return MessageFields(
        id=identifier(number),
        parent=None if parent is None else identifier(parent),
        role="user",
        created_at=number,
        body=canonical({"text": text}),
        **fields,
    )


async def with_chat(store: Store, n_messages: int = 0, chat: str = CHAT) -> int:
    """A chat with a row of messages, 1 to `n_messages`. Returns the last revision."""
    last = await store.chats.put(OWNER, chat, chat_fields(), ONLY_NEW)
    if n_messages:
        made = [message_fields(n, n - 1 if n > 1 else None) for n in range(1, n_messages + 1)]
        last = await store.chats.add_messages(OWNER, chat, made)
    return last


async def everything(store: Store, owner: str = OWNER, limit: int = 500) -> tuple[Any, Any]:
    """All chats and messages as a new reader gets them."""
    chats, messages, _ = await pulled(store, "0", owner, limit)
    return chats, messages


async def pulled(
    store: Store, since: str, owner: str = OWNER, limit: int = 500
) -> tuple[list[Any], list[Any], str]:
    """Returns the chats and messages that changed, and the cursor at their end."""
    chats: list[Any] = []
    messages: list[Any] = []
    while True:
        page = await store.changes.page(owner, Cursor.read(since), limit)
        chats += map(json.loads, page.chats)
        messages += map(json.loads, page.messages)
        since = str(page.cursor)
        if not page.more:
            return chats, messages, since
