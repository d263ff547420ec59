"""Failures say what is wrong, and reads go on beside a write that fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from deployments.contract.errors import Refused, RequestError
from deployments.store import database
from deployments.store.chats import now_ms
from deployments.store.database import Database, store_url
from deployments.store.failures import BROKEN, BUSY, FULL, OUT_OF_REACH, READ_ONLY
from deployments.store.store import KeptStore, Store
from tests.databases import opened, sqlite_url
from tests.store.keeping import OWNER, create, items, kept, put
from tests.store.talking import CHAT, everything, identifier, message_fields, with_chat

LARGE = 300_000  # bytes: more than the pages that a small store has left
DIGEST = "0" * 64


async def error_of(work: Awaitable[object]) -> RequestError:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.error


@asynccontextmanager
async def stores(url: str) -> AsyncIterator[tuple[KeptStore, Store]]:
    async with kept(url) as responses, opened(url) as chats:
        yield responses, chats


async def fill(responses: KeptStore, chats: Store) -> None:
    await put(responses, "a")
    await create(responses, "c", "x")
    await with_chat(chats, 1)
    await chats.files.put(OWNER, DIGEST, "image/png", bytearray(b"x"), now_ms())


def writes(responses: KeptStore, chats: Store) -> list[Awaitable[object]]:
    """One of each store."""
    large = message_fields(2, 1, "x" * LARGE)
    return [
        put(responses, "b", n_bytes=LARGE),
        create(responses, "d", "x" * LARGE),
        chats.chats.add_messages(OWNER, CHAT, [large]),
        chats.files.put(OWNER, "1" * 64, "image/png", bytearray(LARGE), now_ms()),
    ]


async def check_reads(responses: KeptStore, chats: Store) -> None:
    assert await responses.responses.body(OWNER, "a") == b"{}"
    assert await items(responses, "c") == ["x"]
    assert [message["id"] for message in (await everything(chats))[1]] == [identifier(1)]
    assert await chats.files.find(OWNER, DIGEST) is not None


def test_a_full_disk_is_told_of_and_what_is_stored_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sqlite_url(tmp_path)

    async def main() -> None:
        async with stores(url) as found:
            await fill(*found)
        with monkeypatch.context() as full:
            # The fewest that there may be: those that are used now.
            full.setattr(database, "PRAGMAS", (*database.PRAGMAS, "max_page_count=1"))
            async with stores(url) as found:
                for write in writes(*found):
                    assert await error_of(write) == FULL
                await check_reads(*found)
        async with stores(url) as found:
            await asyncio.gather(*writes(*found))  # nothing of the failed ones is left

    asyncio.run(main())


def test_a_store_that_others_lock_is_busy_and_can_be_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with stores(url) as found:
            await fill(*found)
        # The least patience, in milliseconds and seconds.
        monkeypatch.setattr(database, "PRAGMAS", (*database.PRAGMAS, "busy_timeout=1"))
        monkeypatch.setattr(database, "POSTGRES", {**database.POSTGRES, "command_timeout": 0.5})
        locking = Database(store_url(url))
        async with locking.writing() as connection, stores(url) as found:
            if not locking.is_sqlite:
                await connection.execute(text("LOCK TABLE kept, owner IN EXCLUSIVE MODE"))
            errors = [error_of(write) for write in writes(*found)]
            assert await asyncio.gather(*errors) == [BUSY] * 4
            await check_reads(*found)
        await locking.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("state", "error"),
    [("53100", FULL), ("25006", READ_ONLY), ("42501", READ_ONLY), ("XX000", BROKEN)]
    + [("55P03", BUSY), ("57014", BUSY), ("57P03", OUT_OF_REACH), ("08006", OUT_OF_REACH)],
)
def test_what_postgres_raises_is_told_in_our_words(
    postgres: str, state: str, error: RequestError
) -> None:
    raised = text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$")

    async def main() -> None:
        found = Database(store_url(postgres))

        async def work() -> None:
            async with found.writing() as connection:
                await connection.execute(raised)

        assert await error_of(work()) == error
        await found.close()

    asyncio.run(main())


def test_a_file_that_nobody_may_write_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sqlite_url(tmp_path)

    async def main() -> None:
        async with stores(url) as found:
            await fill(*found)
        monkeypatch.setattr(database, "PRAGMAS", (*database.PRAGMAS, "query_only=ON"))
        async with stores(url) as found:
            assert await error_of(put(found[0], "b")) == READ_ONLY
            await check_reads(*found)

    asyncio.run(main())
