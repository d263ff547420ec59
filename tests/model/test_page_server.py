"""Pages between replicas: what is asked of whom, and how it ends when nobody answers."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field

import pytest
from ray import serve
from ray.exceptions import ActorDiedError

from deployments.model import router_link
from deployments.model.page_server import AT_ONCE, PagePuller, PageServer
from kv.arrivals import PageKey
from kv.pool import PrefixCache
from kv.tiers.parcel import NOTHING, PageReader, Parcel
from tests.kv.tiers.test_parcel import KEYS, numbers, reader

PIECES = [[key] for key in KEYS] * 3
Read = Callable[[str, bytes, Sequence[PageKey]], Awaitable[Parcel]]


class Response:
    """A call that ends as its replica does."""

    def __init__(self, answer: Awaitable[Parcel]) -> None:
        self._answer = asyncio.ensure_future(answer)

    def __await__(self) -> Generator[None, None, Parcel]:
        return self._answer.__await__()

    def cancel(self) -> None:
        self._answer.cancel()


@dataclass
class Handle:
    """A model's handle as Serve makes it, whose calls all come to one replica."""

    read: Read
    n_running: int = 0
    most: int = 0
    asked: list[int] = field(default_factory=list)

    def options(self, *, method_name: str, _by_reference: bool) -> "Handle":
        assert (method_name, _by_reference) == ("read_pages", True)
        return self

    def remote(self, pin: str, namespace: bytes, keys: Sequence[PageKey]) -> Response:
        return Response(self._run(pin, namespace, keys))

    async def _run(self, pin: str, namespace: bytes, keys: Sequence[PageKey]) -> Parcel:
        self.n_running += 1
        self.most = max(self.most, self.n_running)
        try:
            return await self.read(pin, namespace, keys)
        finally:
            self.n_running -= 1


def pull(
    monkeypatch: pytest.MonkeyPatch, read: Read, goes_on: Callable[[int], bool] = lambda n: True
) -> tuple[Handle, dict[int, Parcel]]:
    """Pulls all pieces from the replica `a`. Returns what has come when that is done."""
    handle, taken = Handle(read), dict[int, Parcel]()
    monkeypatch.setattr(serve, "get_deployment_handle", lambda *names: handle)

    def take(number: int, parcel: Parcel) -> bool:
        taken[number] = parcel
        return goes_on(number)

    async def scenario() -> None:
        is_done, loop = asyncio.Event(), asyncio.get_running_loop()
        done = lambda: loop.call_soon_threadsafe(is_done.set)  # noqa: E731
        puller = PagePuller("model-m")
        await asyncio.to_thread(puller, "a", b"ours", PIECES, take, done)
        await is_done.wait()
        assert handle.n_running == 0

    asyncio.run(scenario())
    return handle, taken


def served_by(pages: PageReader | None, name: str = "a") -> Read:
    return PageServer(name, lambda: pages).read


def test_all_pieces_come_some_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, taken = pull(monkeypatch, served_by(reader(PrefixCache(2))))
    assert sorted(taken) == [*range(len(PIECES))]
    assert numbers(taken[0]) == [0]
    assert 1 < handle.most <= AT_ONCE


@pytest.mark.parametrize("name", ["b", "asleep"])
def test_another_replica_and_one_that_sleeps_send_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Ray sends a call elsewhere where its replica is gone."""
    pages = None if name == "asleep" else reader(PrefixCache(2))
    read = served_by(pages, "a" if name == "asleep" else name)
    _, taken = pull(monkeypatch, read, goes_on=lambda number: False)
    assert 0 < len(taken) <= AT_ONCE  # what was under way; nothing is asked for behind a gap
    assert all(parcel is NOTHING for parcel in taken.values())


async def _dies(pin: str, namespace: bytes, keys: Sequence[PageKey]) -> Parcel:
    raise ActorDiedError()


async def _is_silent(pin: str, namespace: bytes, keys: Sequence[PageKey]) -> Parcel:
    await asyncio.Event().wait()
    return NOTHING


@pytest.mark.parametrize("read", [_dies, _is_silent])
def test_a_replica_that_dies_or_is_silent_ends_the_pull(
    monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    if read is _is_silent:
        monkeypatch.setattr(router_link, "CALL_TIMEOUT_S", 0.01)
    _, taken = pull(monkeypatch, read)
    assert not taken


def test_without_serve_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*names: str) -> None:
        raise KeyError("no such deployment")

    async def scenario() -> None:
        monkeypatch.setattr(serve, "get_deployment_handle", fails)
        puller = PagePuller("model-m")
        await puller.connect()
        is_done, loop = asyncio.Event(), asyncio.get_running_loop()
        puller("a", b"", PIECES, lambda *_: True, lambda: loop.call_soon(is_done.set))
        await is_done.wait()

    asyncio.run(scenario())
