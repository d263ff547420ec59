"""Replicas with real channels in this process, behind a handle that takes pins for hints."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import ActorDiedError

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.ingress.fleet.channel_client import ChannelClients
from deployments.ingress.fleet.serve_handles import ServeHandles
from deployments.model.channel_server import ChannelServers as Ends

MODEL = "tiny"
RunSequence = Callable[[str, GenerationRequest], AsyncGenerator[TokenEvent, None]]


class Replica:
    """`told` counts calls to update_channel; `closed` is set when a channel has ended.

    `completed` has the sequences whose readers left with all of the answer.
    """

    def __init__(self, name: str, run: RunSequence, idle_s: float = 60.0) -> None:
        self.name = name
        self.ends = Ends(name, self._run_sequence, idle_s)
        self.run = run
        self.completed: list[str] = []
        self.closed = asyncio.Event()
        self.is_running = True
        self.opened: list[str] = []
        self.told = 0
        self.called = asyncio.Event()
        self.gate: asyncio.Event | None = None  # that calls to update_channel wait for
        self._death: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def _run_sequence(
        self, version: str, request: GenerationRequest, is_complete: Callable[[], bool]
    ) -> AsyncGenerator[TokenEvent, None]:
        try:
            async with aclosing(self.run(version, request)) as events:
                async for event in events:
                    yield event
        finally:
            if is_complete():
                self.completed.append(request.request_id)

    def die(self, death: BaseException | None = None) -> None:
        self.is_running = False
        if not self._death.done():
            self._death.set_result(death or ActorDiedError())

    async def open_channel(self, name: str, update: bytes) -> AsyncGenerator[bytes, None]:
        self.opened.append(name)
        try:
            async with aclosing(self.ends.open(name, update)) as bursts:
                while (burst := await self._unless_dead(bursts)) is not None:
                    yield burst
        finally:
            self.closed.set()

    async def _unless_dead(self, bursts: AsyncGenerator[bytes, None]) -> bytes | None:
        burst = asyncio.ensure_future(anext(bursts, None))
        either: set[asyncio.Future[Any]] = {burst, self._death}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not burst.done():
                raise self._death.result()
            return await burst
        finally:
            burst.cancel()
            await asyncio.wait({burst})

    async def update_channel(self, name: str, update: bytes) -> bool:
        self.told += 1
        self.called.set()
        if self.gate is not None:
            await self.gate.wait()
        if self._death.done():
            raise self._death.result()
        return self.ends.update(name, update)


@dataclass(slots=True)
class Replicas:
    all: list[Replica]
    aborted: list[str] = field(default_factory=list)

    def channels(self) -> ChannelClients:
        return ChannelClients(ServeHandles(lambda deployment, application: self))

    def found(self, pin: str) -> Replica:
        running = [replica for replica in self.all if replica.is_running]
        return next((replica for replica in running if replica.name == pin), running[0])

    def options(self, *, stream: bool, method_name: str) -> "Remote":
        assert (stream, method_name) == (True, "open_channel")
        return Remote(lambda pin, *args: Stream(self.found(pin).open_channel(*args)))

    @property
    def update_channel(self) -> "Remote":
        return Remote(lambda pin, *args: Response(self.found(pin).update_channel(*args)))

    def broadcast(self, method: str, *request_ids: str) -> "Broadcast":
        assert method == "abort"
        self.aborted += request_ids
        return Broadcast()


@dataclass(slots=True)
class Remote:
    remote: Callable[..., Any]


class Stream:
    """Whoever cancels it ends what it comes from, as with Serve's."""

    def __init__(self, items: AsyncGenerator[Any, None]) -> None:
        self._items = items
        self._next: asyncio.Task[Any] | None = None
        self.is_cancelled = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        self._next = asyncio.ensure_future(anext(self._items))
        try:
            return await asyncio.shield(self._next)
        except asyncio.CancelledError:
            if self._next.cancelled():
                raise ActorDiedError from None
            raise

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._next is not None:
            self._next.cancel()


class Response:
    """Whoever stops to wait for it does not end the call, as with Serve's."""

    def __init__(self, call: Coroutine[Any, Any, object]) -> None:
        self._call = asyncio.ensure_future(call)

    def __await__(self) -> Generator[Any, None, object]:
        value = yield from asyncio.shield(self._call).__await__()
        if isinstance(value, BaseException):
            raise value
        return value

    def cancel(self) -> None:
        self._call.cancel()


class Broadcast:
    async def _fetch_replica_results_async(self) -> "list[Broadcast]":
        return [self]

    async def get_async(self) -> object:
        return 0
