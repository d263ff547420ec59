"""The work on a request: on the event loop if it is short, else in a thread.

Large bodies are worked on one at a time. Many threads would leave the event loop too little of the
interpreter, and together they would need too much memory.
"""

import asyncio
import os
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TypeVar

from deployments.sandbox.process import served_client

OFF_LOOP_BYTES = 8 << 10  # of a body whose work is done in a thread
LARGE_BYTES = 256 << 10
# All but one of the threads that asyncio has for such work: it also does what no client waits for.
MAX_LIGHT = min(32, (os.cpu_count() or 1) + 4) - 1

ValueT = TypeVar("ValueT")


@dataclass(slots=True, eq=False)
class Turns:
    """`free` at a time, of which one client has at most `most`. Clients that wait are served in
    turn. Belongs to one event loop.
    """

    free: int = 1
    most: int = sys.maxsize
    _waiting: OrderedDict[str, deque[asyncio.Future[None]]] = field(default_factory=OrderedDict)
    _taken: Counter[str] = field(default_factory=Counter)

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        await self._take(client)
        try:
            yield
        finally:
            self._pass_on(client)

    async def _take(self, client: str) -> None:
        if self._may(client):
            self.free -= 1
            self._taken[client] += 1
            return
        ours = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(ours)
        try:
            await ours
        except asyncio.CancelledError:
            if not ours.cancelled():  # it was our turn already
                self._pass_on(client)
            raise

    def _pass_on(self, client: str) -> None:
        self.free += 1
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
        while following := next((who for who in self._waiting if self._may(who)), None):
            queue = self._waiting.pop(following)
            first = queue.popleft()
            if queue:
                self._waiting[following] = queue
            if not first.done():
                self.free -= 1
                self._taken[following] += 1
                first.set_result(None)

    def _may(self, client: str) -> bool:
        return self.free > 0 and self._taken[client] < self.most


@dataclass(slots=True, eq=False)
class OffLoop:
    """The threads of a process beside its event loop."""

    turns: Turns = field(default_factory=Turns)  # of large bodies
    light_turns: Turns = field(default_factory=lambda: Turns(MAX_LIGHT, most=MAX_LIGHT - 1))
    large: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="large-body")
    )


@dataclass(slots=True)
class BodyWork:
    """Work on a body, in the order of arrival for each client.

    n_bytes: of the body, and of what was recalled for it.
    """

    off_loop: OffLoop
    n_bytes: int
    client: str

    async def run(self, work: Callable[[], ValueT], *, is_heavy: bool = False) -> ValueT:
        """The result of `work`, which may be heavy however short the body is."""
        served_client.set(self.client)
        if self.n_bytes > LARGE_BYTES:
            async with self.off_loop.turns.turn(self.client):
                return await self._run_large(work)
        if self.n_bytes > OFF_LOOP_BYTES or is_heavy:
            async with self.off_loop.light_turns.turn(self.client):
                return await asyncio.to_thread(work)
        return work()

    async def _run_large(self, work: Callable[[], ValueT]) -> ValueT:
        """Runs `work` like `to_thread`, in the one thread for large bodies."""
        loop, context = asyncio.get_running_loop(), copy_context()
        return await loop.run_in_executor(self.off_loop.large, context.run, work)
