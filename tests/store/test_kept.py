"""Responses and conversations are there for their owner, bounded, and go whole."""

import asyncio
import random

import pytest

from deployments.contract.errors import ErrorKind, Refused
from deployments.store.items import NewResponse, Recalled, StoredItem, Wanted
from deployments.store.store import KeptStore
from tests.store.keeping import (
    OWNER,
    counted,
    create,
    earlier,
    inputs,
    item,
    items,
    kept,
    known,
    put,
    refusal,
    reserve_nothing,
    rows,
    run,
)


def test_a_response_is_found_by_other_processes_and_after_a_restart(url: str) -> None:
    async def work(store: KeptStore) -> None:
        assert await put(store, "a")
        async with kept(url) as other:
            assert await other.responses.body(OWNER, "a") == b"{}"
            assert await put(other, "b", "a")
        assert await earlier(store, "b") == ["in_a", "out_a", "in_b", "out_b"]
        assert await inputs(store, "b") == ["in_a", "out_a", "in_b"]

    run(url, work)


def test_owners_see_their_own(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await put(store, "a")
        await put(store, "a", owner="")
        await create(store, "c", "one")
        for owner in ("", "name:bert"):
            assert await items(store, "c", owner) is None
            assert await known(store, "one", owner=owner) == set()
            assert not await store.conversations.delete(owner, "c")
            with pytest.raises(Refused):
                await earlier(store, conversation="c", owner=owner)
        assert await store.responses.delete("", "a")
        assert not await store.responses.delete("name:bert", "a")
        assert await store.responses.body(OWNER, "a") is not None
        assert await known(store, "one", "in_a") == {"one", "in_a"}

    run(url, work)


def test_what_is_deleted_stays_for_what_continues_it_alone(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await put(store, "a")
        await put(store, "b", "a")
        await put(store, "c", "b")
        await put(store, "d", "b")
        for gone in "ab":
            assert await store.responses.delete(OWNER, gone)
            assert not await store.responses.delete(OWNER, gone)
            assert await store.responses.body(OWNER, gone) is None
            assert await inputs(store, gone) is None
            assert await known(store, f"in_{gone}", f"out_{gone}") == set()
            with pytest.raises(Refused):
                await earlier(store, gone)
        assert await inputs(store, "d") == ["in_a", "out_a", "in_b", "out_b", "in_d"]
        await store.responses.delete(OWNER, "c")
        assert await rows(url) == [3, 0, 6]
        await store.responses.delete(OWNER, "d")
        assert await rows(url) == [0, 0, 0]

    run(url, work)


def test_the_least_recently_continued_go_first(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await put(store, "a")
        await put(store, "b")
        await put(store, "c", "a")
        assert [await store.responses.body(OWNER, name) for name in "abc"] == [b"{}", None, b"{}"]
        await put(store, "d", owner="name:bert")
        assert await store.responses.body(OWNER, "a") == b"{}"

    run(url, work, max_responses=2)


def test_responses_are_bounded_in_bytes(url: str) -> None:
    async def work(store: KeptStore) -> None:
        for number in range(8):
            assert await put(store, f"{number}", n_bytes=1000)
        bodies = [await store.responses.body(OWNER, f"{number}") for number in range(8)]
        assert [body is not None for body in bodies] == [False] * 6 + [True] * 2
        assert not await put(store, "huge", n_bytes=5000)
        assert await store.responses.body(OWNER, "huge") is None
        assert await rows(url) == [2, 0, 4]
        assert await put(store, "small")
        assert await rows(url) == [2, 0, 4]

    run(url, work, max_response_bytes=6000)


def test_what_continues_a_response_that_went_meanwhile_is_not_kept(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await put(store, "a")
        recalled = await store.responses.recall(OWNER, Wanted(previous="a"), reserve_nothing)
        await store.responses.delete(OWNER, "a")
        new = NewResponse(id="b", body=b"{}", recalled=recalled, given=(item("x"),), output=())
        assert not await store.responses.put(OWNER, new)
        assert await rows(url) == [0, 0, 0]

    run(url, work)


def test_a_conversation_has_what_its_responses_add(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await create(store, "c", "one", "two")
        await put(store, "a", conversation="c")
        await put(store, "b", conversation="c")
        assert await items(store, "c") == ["one", "two", "in_a", "out_a", "in_b", "out_b"]
        assert await inputs(store, "a") == ["one", "two", "in_a"]
        await put(store, "d", "a")
        assert await inputs(store, "d") == ["one", "two", "in_a", "out_a", "in_d"]
        await store.responses.delete(OWNER, "a")
        assert await items(store, "c") == ["one", "two", "in_a", "out_a", "in_b", "out_b"]
        found = await store.conversations.delete_item(OWNER, "c", "one")
        assert found is not None
        assert await store.conversations.delete_item(OWNER, "c", "one") is None
        assert await store.conversations.delete_item(OWNER, "c", "in_b") is not None
        assert await items(store, "c") == ["two", "in_a", "out_a", "out_b"]
        assert await inputs(store, "b") == ["two", "in_a", "out_a", "in_b"]
        assert await store.conversations.delete(OWNER, "c")
        assert not await store.conversations.delete(OWNER, "c")
        assert await items(store, "c") is None
        assert await known(store, "two", "in_a", "in_b") == {"in_b"}
        assert await inputs(store, "b") == ["two", "in_a", "out_a", "in_b"]
        for last in "bd":
            await store.responses.delete(OWNER, last)
        assert await rows(url) == [0, 0, 0]

    run(url, work)


def test_of_a_response_that_is_not_stored_its_conversation_has_the_items(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await create(store, "c")
        recalled = await store.responses.recall(OWNER, Wanted(conversation="c"), reserve_nothing)
        new = NewResponse(id="a", body=None, recalled=recalled, given=(item("x"),), output=())
        assert not await store.responses.put(OWNER, new)
        assert await store.responses.body(OWNER, "a") is None
        assert await items(store, "c") == ["x"]

    run(url, work)


def test_conversations_are_bounded_and_have_no_item_twice(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await create(store, "c", "one")
        again = store.conversations.add(OWNER, "c", [item("two"), item("one")])
        assert await refusal(again) is ErrorKind.INVALID_REQUEST
        twice = store.conversations.add(OWNER, "c", [item("two"), item("two")])
        assert await refusal(twice) is ErrorKind.INVALID_REQUEST
        many = store.conversations.add(OWNER, "c", [item(f"{n}") for n in range(5)])
        assert await refusal(many) is ErrorKind.STORAGE_FULL
        huge = store.conversations.add(OWNER, "c", [item("huge", 4000)])
        assert await refusal(huge) is ErrorKind.STORAGE_FULL
        with pytest.raises(Refused):
            await put(store, "r", conversation="c", n_bytes=4000)
        assert await store.responses.body(OWNER, "r") is None
        assert await items(store, "c") == ["one"]
        await create(store, "d")
        assert await refusal(create(store, "e")) is ErrorKind.STORAGE_FULL
        await store.conversations.delete(OWNER, "d")
        large = store.conversations.create(OWNER, "d", "x" * 4000, 1, [])
        assert await refusal(large) is ErrorKind.STORAGE_FULL
        await create(store, "e")
        assert await refusal(store.conversations.add(OWNER, "d", [])) is ErrorKind.NOT_FOUND

    run(url, work, max_items=5, max_conversations=2, max_conversation_bytes=4000)


def test_what_responses_have_of_deleted_conversations_counts_as_theirs(url: str) -> None:
    async def work(store: KeptStore) -> None:
        for name in "cd":
            await create(store, name)
            await put(store, f"of_{name}", conversation=name)
        for name in "cd":
            await store.conversations.add(OWNER, name, [item(name, 1000)])
            await store.conversations.delete(OWNER, name)
        bodies = [await store.responses.body(OWNER, f"of_{name}") for name in "cd"]
        assert [body is not None for body in bodies] == [False, True]
        assert await rows(url) == [1, 1, 3]

    run(url, work, max_response_bytes=4500, max_conversation_bytes=3000)


def test_what_is_recalled_is_reserved_before_it_is_read(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await put(store, "a", n_bytes=1000)
        await put(store, "b", "a", n_bytes=1000)
        copies = (item("in_a", 1000),)
        new = NewResponse(id="c", body=b"{}", recalled=Recalled(), given=copies, output=())
        await store.responses.put(OWNER, new)
        reserved: list[int] = []
        wanted = Wanted(previous="b", ids=["in_a"])
        await store.responses.recall(OWNER, wanted, reserved.append)
        assert reserved[0] > 4000
        assert 1000 < reserved[1] < 2000

        def refuse(n_bytes: int) -> None:
            raise Refused.of_kind(ErrorKind.OVERLOADED, "too many")

        assert await refusal(store.responses.recall(OWNER, wanted, refuse)) is ErrorKind.OVERLOADED

    run(url, work)


def test_many_writers_at_once_lose_nothing(url: str) -> None:
    async def work(store: KeptStore) -> None:
        await create(store, "c")
        async with kept(url) as other:
            puts = [put((store, other)[n % 2], f"{n}", conversation="c") for n in range(40)]
            assert all(await asyncio.gather(*puts))
        found = await items(store, "c")
        assert found is not None
        assert len(found) == 80
        said, true = await counted(url)
        assert said == true

    run(url, work)


def test_ids_that_no_database_has_are_not_there(url: str) -> None:
    async def work(store: KeptStore) -> None:
        for name in ("\0", "x" * 5000, "\ufffd"):
            assert await store.responses.body(OWNER, name) is None
            assert await store.conversations.find(OWNER, name) is None
            assert await known(store, name) == set()
            assert await inputs(store, name) is None
            assert await items(store, name) is None
            with pytest.raises(Refused):
                await store.conversations.delete_item(OWNER, name, name)
            assert await store.conversations.update(OWNER, name, "{}") is None
            with pytest.raises(Refused):
                await earlier(store, name)
            with pytest.raises(Refused):
                await earlier(store, conversation=name)

    run(url, work)


@pytest.mark.parametrize("seed", range(3))
def test_counters_are_true_whatever_comes_and_goes(url: str, seed: int) -> None:
    chance = random.Random(seed)

    async def work(store: KeptStore) -> None:
        responses: list[str] = []
        conversations: list[str] = []
        for number in range(60):
            match chance.randrange(7):
                case 0:
                    await create(store, f"c{number}", f"i{number}")
                    conversations.append(f"c{number}")
                case 1 if conversations:
                    name = conversations.pop(chance.randrange(len(conversations)))
                    await store.conversations.delete(OWNER, name)
                case 2 if responses:
                    await store.responses.delete(OWNER, chance.choice(responses))
                case 3 if conversations:
                    name = chance.choice(conversations)
                    for item_id in (await items(store, name) or [])[:1]:
                        await store.conversations.delete_item(OWNER, name, item_id)
                case 4 if conversations:
                    await put(store, f"r{number}", conversation=chance.choice(conversations))
                    responses.append(f"r{number}")
                case _:
                    live = [r for r in responses if await store.responses.body(OWNER, r)]
                    previous = chance.choice([None, *live])
                    await put(store, f"r{number}", previous)
                    responses.append(f"r{number}")
        said, true = await counted(url)
        assert said == true
        for name in conversations:
            await store.conversations.delete(OWNER, name)
        for name in responses:
            await store.responses.delete(OWNER, name)
        assert await rows(url) == [0, 0, 0]
        said, _ = await counted(url)
        assert set(said[OWNER].values()) == {0}

    run(url, work, max_responses=12)


def test_an_id_that_its_client_made_up_is_no_one_to_refer_to(url: str) -> None:
    async def work(store: KeptStore) -> None:
        made_up = StoredItem("secret", b'"x"', is_referable=False)
        await store.conversations.create(OWNER, "c", "{}", 1, [made_up])
        assert await known(store, "secret") == set()
        assert await items(store, "c") == ["secret"]

    run(url, work)
