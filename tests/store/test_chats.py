"""The store keeps what is written to it for its owner, once, within the limits."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from deployments.contract.errors import ErrorKind
from deployments.store.chats import ONLY_NEW, StaleChat
from deployments.store.limits import ROW_BYTES
from deployments.store.store import Store
from tests.databases import opened
from tests.store.keeping import refusal
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


def run(url: str, work: Callable[[Store], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        async with opened(url, **limits) as store:
            await work(store)

    asyncio.run(main())


def test_a_hundred_writers_at_once_get_a_revision_each(url: str) -> None:
    async def work(store: Store) -> None:
        chats = [identifier(n) for n in range(100)]
        puts = [store.chats.put(OWNER, chat, chat_fields(chat), ONLY_NEW) for chat in chats]
        assert sorted(await asyncio.gather(*puts)) == list(range(1, 101))
        found, _ = await everything(store)
        assert {chat["title"] for chat in found} == set(chats)

    run(url, work)


def test_of_two_writers_of_one_chat_one_is_told_what_the_other_wrote(url: str) -> None:
    async def work(store: Store) -> None:
        base = await with_chat(store)
        puts = [store.chats.put(OWNER, CHAT, chat_fields(title), base) for title in ("one", "two")]
        first, second = await asyncio.gather(*puts, return_exceptions=True)
        stale, written = (first, second) if isinstance(first, StaleChat) else (second, first)
        assert isinstance(stale, StaleChat)
        assert written == base + 1
        [chat], _ = await everything(store)
        assert stale.current is not None
        assert f'"title":"{chat["title"]}"' in stale.current

    run(url, work)


def test_a_write_may_be_repeated(url: str) -> None:
    async def work(store: Store) -> None:
        revision = await with_chat(store, 3)
        assert await store.chats.put(OWNER, CHAT, chat_fields(), ONLY_NEW) == 1
        again = [message_fields(2, 1), message_fields(2, 1), message_fields(3, 2)]
        assert await store.chats.add_messages(OWNER, CHAT, again) == revision
        before = await store.owners.state(OWNER)
        for _ in range(2):
            await store.chats.delete_message(OWNER, CHAT, identifier(3))
            await store.chats.delete_message(OWNER, CHAT, identifier(9))
        assert (await store.owners.state(OWNER)).revision == before.revision + 1
        for _ in range(2):
            await store.chats.delete(OWNER, CHAT)
            await store.chats.delete(OWNER, identifier(7))
        assert (await store.owners.state(OWNER)).revision == before.revision + 2

    run(url, work)


def test_what_is_deleted_leaves_a_tombstone_and_gives_its_bytes_back(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store)
        rows = [message_fields(1), message_fields(2, 1), message_fields(3, 1), message_fields(4)]
        since = str(await store.chats.add_messages(OWNER, CHAT, rows))
        await store.chats.delete_message(OWNER, CHAT, identifier(1))
        _, gone, since = await pulled(store, since)
        assert {message["id"] for message in gone} == {identifier(n) for n in (1, 2, 3)}
        assert all(message.keys() == {"chat", "id", "revision", "deleted_at"} for message in gone)
        _, left = await everything(store)
        assert [message["id"] for message in left] == [identifier(4)]
        await store.chats.delete(OWNER, CHAT)
        [tombstone], messages, _ = await pulled(store, since)
        assert tombstone.keys() == {"id", "revision", "deleted_at"}
        assert not messages
        assert (await store.owners.state(OWNER)).n_bytes == ROW_BYTES

    run(url, work)


def test_deleting_wins(url: str) -> None:
    async def work(store: Store) -> None:
        revision = await with_chat(store, 2)
        await store.chats.delete_message(OWNER, CHAT, identifier(2))
        again = store.chats.add_messages(OWNER, CHAT, [message_fields(2, 1)])
        assert await again == revision + 1  # no change
        below = store.chats.add_messages(OWNER, CHAT, [message_fields(3, 2)])
        assert await refusal(below) is ErrorKind.GONE
        await store.chats.delete(OWNER, CHAT)
        for made_from in (ONLY_NEW, 1):
            put = store.chats.put(OWNER, CHAT, chat_fields("more"), made_from)
            assert await refusal(put) is ErrorKind.GONE
        more = store.chats.add_messages(OWNER, CHAT, [message_fields(4)])
        assert await refusal(more) is ErrorKind.NOT_FOUND

    run(url, work)


def test_messages_hang_together_and_never_change(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store, 1)
        await with_chat(store, chat=identifier(99))
        for wrong, kind in (
            (message_fields(1, text="Other"), ErrorKind.CONFLICT),
            (message_fields(3, 2), ErrorKind.INVALID_REQUEST),
        ):
            add = store.chats.add_messages(OWNER, CHAT, [message_fields(5), wrong])
            assert await refusal(add) is kind
        elsewhere = store.chats.add_messages(OWNER, identifier(99), [message_fields(3, 1)])
        assert await refusal(elsewhere) is ErrorKind.INVALID_REQUEST
        twice = [message_fields(6), message_fields(6, text="Other")]
        assert await refusal(store.chats.add_messages(OWNER, CHAT, twice)) is ErrorKind.CONFLICT
        _, messages = await everything(store)
        assert len(messages) == 1  # of what is refused nothing is there

    run(url, work)


def test_limits_hold_and_leave_nothing_half_done(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store, 2)
        chats = store.chats
        before = await store.owners.state(OWNER)
        for work in (
            chats.put(OWNER, identifier(9), chat_fields(), ONLY_NEW),
            chats.add_messages(OWNER, CHAT, [message_fields(3), message_fields(4)]),
            chats.add_messages(OWNER, CHAT, [message_fields(3, text="x" * 500)]),
            chats.put(OWNER, CHAT, chat_fields("x" * 600), 1),
        ):
            assert await refusal(work) is ErrorKind.BODY_TOO_LARGE
        assert await store.owners.state(OWNER) == before
        await chats.add_messages(OWNER, CHAT, [message_fields(3)])
        await chats.delete_message(OWNER, CHAT, identifier(3))
        await chats.add_messages(OWNER, CHAT, [message_fields(4)])

    run(url, work, max_chats=1, max_messages=3, max_message_bytes=500)


def test_who_has_stored_all_it_may_is_told_so_until_it_deletes(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store, 1)
        more = [message_fields(2, text="x" * 1000)]
        full = store.chats.add_messages(OWNER, CHAT, more)
        assert await refusal(full) is ErrorKind.STORAGE_FULL
        await store.chats.put("name:bert", CHAT, chat_fields(), ONLY_NEW)
        await store.chats.delete(OWNER, CHAT)
        await with_chat(store, chat=identifier(9))

    run(url, work, max_owner_bytes=1200)


def test_owners_see_their_own_alone(url: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store, 2)
        await store.chats.put("name:bert", CHAT, chat_fields("Bert's"), ONLY_NEW)
        await store.chats.delete_message("name:bert", CHAT, identifier(1))
        await store.chats.delete("name:eve", CHAT)
        assert (await everything(store, "name:eve")) == ([], [])
        chats, messages = await everything(store)
        assert ([entry["title"] for entry in chats], len(messages)) == (["A chat"], 2)
        await store.chats.delete(OWNER, CHAT)
        [chat], _ = await everything(store, "name:bert")
        assert chat["title"] == "Bert's"

    run(url, work)


@pytest.mark.parametrize("text", ["\x00", "\u2028 \U0001f600", '"\\', "x" * 100_000])
def test_any_text_comes_back_as_it_was(url: str, text: str) -> None:
    async def work(store: Store) -> None:
        await with_chat(store)
        await store.chats.add_messages(OWNER, CHAT, [message_fields(1, text=text)])
        _, [message] = await everything(store)
        assert message["text"] == text

    run(url, work)
