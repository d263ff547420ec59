"""The store in memory: bounded, shared fairly by owners, and it forgets what nobody has."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from deployments.openai.responses.store import MemoryStore, RememberedResponses, StoredResponse
from deployments.store.items import NewResponse, Recalled, StoredItem, Wanted


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def new(name: str, *, of: int = 10, recalled: Recalled | None = None) -> NewResponse:
    given = (StoredItem(f"msg_{name}", b"x" * of),)
    return NewResponse(id=name, body=b"{}", recalled=recalled or Recalled(), given=given, output=())


def size(of: int) -> int:
    one = new("00", of=of)
    return StoredResponse(id="00", body=b"{}", earlier=(), given=one.given, output=()).size


async def has(store: RememberedResponses, name: str) -> bool:
    return await store.body(name) is not None


async def item(store: RememberedResponses, name: str) -> StoredItem | None:
    recalled = await store.recall(Wanted(ids=[name]), lambda n_bytes: None)
    return recalled.known.get(name)


def test_the_least_recently_used_go_first() -> None:
    async def work() -> None:
        store = MemoryStore(max_responses=2).for_owner("")
        await store.put(new("a"))
        await store.put(new("b"))
        assert await has(store, "a")
        await store.put(new("c"))
        assert not await has(store, "b")
        assert await item(store, "msg_b") is None
        assert await has(store, "a")
        assert await item(store, "msg_a") is not None

    run(work())


def test_the_store_is_bounded_in_bytes() -> None:
    async def work() -> None:
        store = MemoryStore(max_bytes=2 * size(1000)).for_owner("")
        for number in range(50):
            assert await store.put(new(f"{number:02}", of=1000))
        assert [n for n in range(50) if await has(store, f"{n:02}")] == [48, 49]
        assert not await store.put(new("huge", of=10_000))
        assert not await has(store, "huge")
        assert await item(store, "msg_huge") is None

    run(work())


def test_who_stores_much_pushes_out_its_own() -> None:
    async def work() -> None:
        for store in (MemoryStore(max_responses=8), MemoryStore(max_bytes=8 * size(10))):
            await store.for_owner("modest").put(new("kept"))
            for number in range(50):
                await store.for_owner("greedy").put(new(f"{number:02}"))
            assert await has(store.for_owner("modest"), "kept")
            assert await has(store.for_owner("greedy"), "49")
            assert not await has(store.for_owner("greedy"), "41")

    run(work())


def test_a_conversation_outlives_its_beginning() -> None:
    async def work() -> None:
        store = MemoryStore(max_responses=1).for_owner("")
        await store.put(new("first"))
        recalled = await store.recall(Wanted(previous="first"), lambda n_bytes: None)
        await store.put(new("second", recalled=recalled))
        assert not await has(store, "first")
        found = await store.recall(Wanted(previous="second"), lambda n_bytes: None)
        assert [entry.id for entry in found.earlier] == ["msg_first", "msg_second"]

    run(work())


def test_an_item_can_be_referred_to_while_any_response_has_it() -> None:
    async def work() -> None:
        store, first = MemoryStore().for_owner(""), new("first")
        await store.put(first)
        second = NewResponse(
            id="second", body=b"{}", recalled=Recalled(), given=first.given, output=()
        )
        await store.put(second)
        assert await store.delete("second")
        assert await item(store, "msg_first") is not None
        assert await store.delete("first")
        assert await item(store, "msg_first") is None

    run(work())


def test_a_deleted_response_makes_room() -> None:
    async def work() -> None:
        store = MemoryStore(max_bytes=size(10)).for_owner("")
        await store.put(new("a"))
        assert await store.delete("a")
        assert not await store.delete("a")
        assert await store.put(new("b"))
        assert await has(store, "b")

    run(work())
