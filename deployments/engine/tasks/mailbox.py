"""Carries events from the engine's thread to whoever waits for a sequence."""

import asyncio
import queue
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from itertools import groupby
from typing import Protocol

from deployments.contract.events import TokenEvent, merge


class Mailbox(Protocol):
    """The place that one sequence's events go to. `put` is called on `loop`, or on the engine's
    thread where `loop` is None."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None: ...

    def put(self, event: TokenEvent) -> None: ...


class ThreadMailbox:
    """Puts a sequence's events, with its number, on a queue that a plain thread reads."""

    loop = None

    def __init__(self, index: int, events: queue.SimpleQueue[tuple[int, TokenEvent]]) -> None:
        self._index = index
        self._events = events

    def put(self, event: TokenEvent) -> None:
        self._events.put((self._index, event))


class LoopMailbox:
    """Read on an event loop. Events that came since the last read are merged into one."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        self._events: list[TokenEvent] = []
        self._ready = asyncio.Event()

    def put(self, event: TokenEvent) -> None:
        self._events.append(event)
        self._ready.set()

    async def events(self) -> AsyncGenerator[TokenEvent, None]:
        while True:
            await self._ready.wait()
            self._ready.clear()
            events, self._events = self._events, []
            yield merge(events)
            if events[-1].finish_reason is not None:
                return


class NullMailbox:
    """The mailbox of a sequence whose events nobody reads."""

    loop = None

    def put(self, event: TokenEvent) -> None:
        pass


def deliver(events: Iterable[tuple[Mailbox, TokenEvent]]) -> None:
    """Hands over a step's events, and wakes each event loop once for all that is read there."""
    for loop, batch in groupby(events, key=lambda item: item[0].loop):
        if loop is None:
            _put_all(list(batch))
        else:
            with suppress(RuntimeError):  # the loop was closed: nobody is left to read them
                loop.call_soon_threadsafe(_put_all, list(batch))


def _put_all(events: list[tuple[Mailbox, TokenEvent]]) -> None:
    for mailbox, event in events:
        mailbox.put(event)
