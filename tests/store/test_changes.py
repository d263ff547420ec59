"""A reader that follows its cursor has what is stored, whatever was written meanwhile."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from deployments.contract.errors import ErrorKind, Refused
from deployments.store.changes import Changes, Cursor
from deployments.store.chats import ONLY_NEW
from deployments.store.database import READERS
from deployments.store.owners import Waits
from deployments.store.store import Store
from deployments.store.sweep import DAY_MS, TOMBSTONE_MS, Sweep
from tests.databases import opened
from tests.effort import tries
from tests.store.talking import (
    CHAT,
    OWNER,
    chat_fields,
    everything,
    identifier,
    message_fields,
    pulled,
    with_chat,
)


def run(url: str, work: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await work(store)

    asyncio.run(main())


def test_the_newest_come_first_at_the_first_time_and_then_what_changed(url: str) -> None:
    async def work(store: Store) -> None:
        for number in range(5):
            await store.chats.put(OWNER, identifier(number), chat_fields(str(number)), ONLY_NEW)
        first = await store.changes.page(OWNER, Cursor(0), 2)
        assert [json.loads(chat)["title"] for chat in first.chats] == ["3", "4"]
        await store.chats.put(OWNER, identifier(0), chat_fields("new"), 1)  # not read yet
        chats, _, since = await pulled(store, str(first.cursor), limit=2)
        assert [chat["title"] for chat in chats] == ["1", "2"]
        chats, _, since = await pulled(store, since)
        assert [chat["title"] for chat in chats] == ["new"]
        assert (await pulled(store, since)) == ([], [], since)

    run(url, work)


def test_pages_are_bounded_in_rows_and_in_bytes_and_miss_nothing(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store)
        await store.chats.add_messages(OWNER, CHAT, [message_fields(n) for n in range(20)])
        await store.chats.delete(OWNER, CHAT)
        await with_chat(store, 20, identifier(1))
        by_rows = await store.changes.page(OWNER, Cursor(1), 3)
        assert (len(by_rows.chats) + len(by_rows.messages), by_rows.more) == (3, True)
        narrow = Changes(store.database, page_bytes=1000)
        seen: set[str] = set()
        for start in (Cursor(0), Cursor(1)):
            cursor, more, seen = start, True, set()
            while more:
                page = await narrow.page(OWNER, cursor, 500)
                assert 1 <= len(page.messages) + len(page.chats) <= 3
                seen |= {json.loads(message)["id"] for message in page.messages}
                cursor, more = page.cursor, page.more
            assert seen == {identifier(n) for n in range(1, 21)}

    run(url, work)


def test_a_reader_among_writers_misses_nothing(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store)
        known: dict[str, Any] = {}

        async def write(number: int) -> None:
            for _ in range(random.Random(number).randrange(200)):
                await asyncio.sleep(0)
            await store.chats.add_messages(OWNER, CHAT, [message_fields(number)])
            if number % 5 == 0:
                await store.chats.delete_message(OWNER, CHAT, identifier(number))

        writers = [asyncio.create_task(write(number)) for number in range(1, tries(40, 400))]
        since, is_last = "0", False
        while not is_last:
            is_last = all(writer.done() for writer in writers)
            _, messages, since = await pulled(store, since, limit=7)
            known |= {message["id"]: message for message in messages}
        left = {key for key, message in known.items() if "deleted_at" not in message}
        _, stored = await everything(store)
        assert left == {message["id"] for message in stored}

    run(url, work)


@pytest.mark.parametrize("since", ["", "-1", "1.5", "x", "1-", "1-2-3", "9" * 30, "\u0661"])
def test_what_is_no_cursor_is_refused(since: str) -> None:
    with pytest.raises(Refused, match="since"):
        Cursor.read(since)


def test_who_may_have_missed_a_tombstone_begins_anew(url: str) -> None:
    async def work(store: Store) -> None:
        before = await with_chat(store, 4)
        sweep = Sweep(store.database, store.owners, max_rows=2)
        await store.chats.delete_message(OWNER, CHAT, identifier(2))
        [tombstone] = (await pulled(store, str(before)))[1][:1]
        old = tombstone["deleted_at"] + TOMBSTONE_MS
        await store.chats.put(OWNER, identifier(9), chat_fields(), ONLY_NEW)
        await store.chats.delete(OWNER, identifier(9))
        assert await sweep.all(old) == 0
        assert await sweep.all(old + DAY_MS) == 4  # three messages, one chat
        for stale in (before, before + 2, 10_000):
            with pytest.raises(Refused) as refused:
                await store.changes.page(OWNER, Cursor(stale), 10)
            assert refused.value.error.kind is ErrorKind.GONE
        chats, messages, since = await pulled(store, "0")
        assert ([chat["id"] for chat in chats], len(messages)) == ([CHAT], 1)
        assert await pulled(store, since) == ([], [], since)
        state = await store.owners.state(OWNER)
        await store.chats.delete(OWNER, CHAT)
        await sweep.all(old + 2 * DAY_MS)
        assert (state.n_bytes > 0, (await store.owners.state(OWNER)).n_bytes) == (True, 0)

    run(url, work)


def test_an_export_has_all_that_lives(url: str) -> None:
    async def work(store: Store) -> None:
        for number in range(3):
            await with_chat(store, chat=identifier(number))
        many = [message_fields(n, n - 1 if n > 1 else None) for n in range(1, 251)]
        for start in range(0, len(many), 100):
            await store.chats.add_messages(OWNER, identifier(1), many[start : start + 100])
        await store.chats.delete(OWNER, identifier(0))
        await store.chats.delete_message(OWNER, identifier(1), identifier(250))
        narrow = Changes(store.database, page_bytes=30_000)
        text = "".join([part async for part in narrow.export(OWNER)])
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["chat"]["id"] for line in lines] == [identifier(1), identifier(2)]
        assert [message["id"] for message in lines[0]["messages"]] == [row.id for row in many[:249]]
        assert lines[1]["messages"] == []

    run(url, work)


def test_an_owner_at_work_leaves_connections_to_others(url: str) -> None:
    async def work(store: Store) -> None:
        async with AsyncExitStack() as connections:
            for _ in range(READERS):
                await connections.enter_async_context(store.database.reading(OWNER))
            await connections.enter_async_context(store.owners.writing(OWNER))
            more: list[asyncio.Task[Any]] = []
            more += [asyncio.create_task(with_chat(store)) for _ in range(9)]
            more += [asyncio.create_task(everything(store)) for _ in range(9)]
            assert (await store.owners.state("name:bert")).revision == 0
        await asyncio.gather(*more)

    run(url, work)


def test_a_write_wakes_who_waits_for_its_owner(url: str) -> None:
    async def work(store: Store) -> None:
        with store.waits.waiting(OWNER) as ours, store.waits.waiting("name:bert") as other:
            await with_chat(store)
            assert ours.is_set()
            assert not other.is_set()

    run(url, work)


def test_a_write_of_another_process_wakes_who_waits(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store)
        waits = Waits(store.database, look_s=0.01)
        async with opened(url) as other:
            with waits.waiting(OWNER) as event:
                await event.wait()  # the first look
                event.clear()
                await other.chats.put(OWNER, identifier(5), chat_fields(), ONLY_NEW)
                await event.wait()
        await waits.close()

    run(url, work)
