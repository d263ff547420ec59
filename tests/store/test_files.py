"""Files are there whole while a message has them, and a day for messages to come."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256

from deployments.store.chats import now_ms
from deployments.store.files import PART_BYTES
from deployments.store.limits import ROW_BYTES
from deployments.store.store import Store
from deployments.store.sweep import UNUSED_FILE_MS
from tests.databases import opened
from tests.store.talking import CHAT, OWNER, identifier, message_fields, with_chat

DATA = bytearray(range(256)) * (PART_BYTES // 128) + b"end"
DIGEST = sha256(DATA).hexdigest()


def run(url: str, work: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await work(store)

    asyncio.run(main())


async def put(store: Store, owner: str = OWNER) -> None:
    await store.files.put(owner, DIGEST, "image/png", DATA, now_ms())


def test_a_file_comes_back_in_parts_to_its_owner_alone(url: str) -> None:
    async def work(store: Store) -> None:
        await put(store)
        await put(store)
        parts = [part async for part in store.files.parts(OWNER, DIGEST)]
        assert [len(part) for part in parts] == [PART_BYTES, PART_BYTES, 3]
        assert b"".join(parts) == DATA
        assert await store.files.find("name:bert", DIGEST) is None
        assert not [part async for part in store.files.parts("name:bert", DIGEST)]
        assert (await store.owners.state(OWNER)).n_bytes == len(DATA) + ROW_BYTES

    run(url, work)


def test_a_file_goes_with_the_last_message_that_has_it(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store)
        await with_chat(store, chat=identifier(1))
        has = frozenset({DIGEST})
        await store.chats.add_messages(OWNER, CHAT, [message_fields(1, files=has)])
        await store.chats.add_messages(OWNER, identifier(1), [message_fields(2, files=has)])
        await put(store)
        await put(store, "name:bert")
        await store.chats.delete_message(OWNER, CHAT, identifier(1))
        assert await store.files.find(OWNER, DIGEST) is not None
        await store.chats.delete(OWNER, identifier(1))
        assert await store.files.find(OWNER, DIGEST) is None
        assert not [part async for part in store.files.parts(OWNER, DIGEST)]
        assert await store.files.find("name:bert", DIGEST) is not None

    run(url, work)


def test_a_file_that_no_message_came_for_goes(url: str) -> None:
    async def work(store: Store) -> None:
        await store.files.put(OWNER, DIGEST, "image/png", DATA, 0)
        await put(store)  # its message is on the way again
        assert await store.sweep.all(now_ms()) == 0
        assert await store.sweep.all(now_ms() + 2 * UNUSED_FILE_MS) == 1
        assert await store.files.find(OWNER, DIGEST) is None
        assert (await store.owners.state(OWNER)).n_bytes == 0

    run(url, work)
