"""Frees an engine without requests; the next request brings it back.

Whoever comes while it goes or returns waits and is served. Belongs to one event loop, which nothing
here blocks.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.slots import SlotStatus
from deployments.engine.core import EngineCore
from deployments.engine.stats import EngineStats
from deployments.model.metrics import with_past
from deployments.serving.detached_tasks import create_detached_task

log = logging.getLogger("ray.serve")

RETRY_S = 1.0  # after files could not be read; doubled each time
MAX_RETRY_S = 300.0


class EngineSource(Protocol):
    """Makes engines and frees them; both block."""

    def start(self) -> EngineCore: ...

    def release(self) -> None:
        """Frees the memory of an engine that was shut down and that nobody refers to."""
        ...


class Sleeper:
    """`core` is the source's first engine; `idle_s` without requests let it go, None never.

    No more than `max_waiting` wait for it to wake; once it is there it has a queue of its own.
    `on_change` hears of every later engine, and None when there is none any more.

    A wake that fails is told at once to whoever asks. Where files could not be read, as no other
    process could read them, it is tried again by itself, and takes `wake_timeout_s` at most. After
    any other failure only another process can help: the health check says so.
    """

    def __init__(
        self,
        source: EngineSource,
        core: EngineCore,
        idle_s: float | None,
        max_waiting: int,
        on_change: Callable[[EngineCore | None], None],
        wake_timeout_s: float,
        retry_s: float = RETRY_S,
    ) -> None:
        self._source = source
        self._core: EngineCore | None = core
        self._idle_limit_s = idle_s
        self._max_waiting = max_waiting
        self._on_change = on_change
        self._awake = asyncio.Event()
        self._awake.set()
        self._transition = asyncio.Lock()  # held while an engine starts or stops
        self._waking: asyncio.Task[None] | None = None
        self._wake_timeout_s = wake_timeout_s
        self._first_retry_s = self._retry_s = retry_s
        self._failure = ""  # of the last wake
        self._is_broken = False  # it can't be tried again here
        self._users = 0
        self._idle_since = time.monotonic()
        self._past_stats = EngineStats()  # counters of earlier engines

    @property
    def users(self) -> int:
        """Requests that use the engine, or wait for it."""
        return self._users

    @property
    def idle_s(self) -> float:
        return 0.0 if self._users else time.monotonic() - self._idle_since

    @property
    def sleeping(self) -> bool:
        """Whether it sleeps; True also while it falls asleep or wakes."""
        return self._core is None

    @property
    def failure(self) -> str:
        """Why it does not wake; "" if nothing is known against it."""
        return self._failure

    @asynccontextmanager
    async def engine(self) -> AsyncGenerator[EngineCore, None]:
        """The engine, which stays while it is used. Raises Refused when it can't wake, or when too
        many requests wait for that.
        """
        self._users += 1
        try:
            yield self._core or await self._ensure_awake()
        finally:
            self._users -= 1
            self._idle_since = time.monotonic()

    @property
    def core(self) -> EngineCore | None:
        """The engine; None while there is none."""
        return self._core

    def abort(self, request_id: str) -> None:
        if self._core is not None:
            self._core.abort(request_id)

    def end_thoughts(self, response_id: str) -> bool:
        return self._core is not None and self._core.end_thoughts(response_id)

    def slots_of(self, owner: str) -> Mapping[int, SlotStatus]:
        """Says what the slots of an owner hold: nothing while it sleeps."""
        return {} if self._core is None else self._core.slots_of(owner)

    def stats(self) -> EngineStats:
        """Counters of all engines there have been, gauges of the one there is; without one those
        wait who want it to wake.
        """
        if self._core is None:
            return replace(self._past_stats, waiting_requests=self._users)
        return with_past(self._core.stats(), self._past_stats)

    def check_health(self) -> None:
        """Raises RuntimeError when the engine can't go on or will not wake."""
        if self._is_broken:
            raise RuntimeError(self._failure)
        if self._core is not None:
            self._core.check_health()

    async def run(self) -> None:
        """Puts the engine to sleep whenever it was idle for `idle_s`.

        Raises RuntimeError when the engine can't go on: asleep it would pass the health check, and
        no other process would take its place.
        """
        if self._idle_limit_s is None:
            return
        while True:
            await self._awake.wait()
            await asyncio.sleep(self._idle_limit_s - self.idle_s)
            if self.idle_s >= self._idle_limit_s:
                self.check_health()
                await self.sleep()

    async def sleep(self) -> bool:
        """Whether it fell asleep. It does not while the engine is used."""
        if self._core is None or self._users:
            return False
        async with self._transition:
            core, self._core = self._core, None
            self._awake.clear()
            self._on_change(None)
            before = self._past_stats
            self._past_stats = _ended(core.stats(), before)
            cores = [core]
            del core
            self._past_stats = _ended(await asyncio.to_thread(_shut_down, cores), before)
            await asyncio.to_thread(self._source.release)
        log.info("asleep: weights and pages are gone until the next request")
        return True

    def close(self) -> None:
        """Blocks until the engine has ended; idempotent."""
        if self._core is not None:
            self._core.shutdown()

    async def _ensure_awake(self) -> EngineCore:
        if self._users > self._max_waiting:
            message = f"{self._max_waiting} requests wait for the model to wake already"
            raise Refused.of_kind(ErrorKind.OVERLOADED, message)
        if self._core is None and not self._failure:
            self._start_waking()
            assert self._waking is not None
            await asyncio.shield(self._waking)
        if self._core is None:
            raise Refused.of_kind(ErrorKind.UNAVAILABLE, self._failure)
        return self._core

    def _start_waking(self) -> None:
        if self._waking is None:
            # Detached: the request that wakes it may leave.
            self._waking = create_detached_task(self._wake())

    async def _wake(self) -> None:
        started = time.monotonic()
        limit = asyncio.timeout(self._wake_timeout_s)
        async with self._transition:
            try:
                async with limit:
                    self._core = await asyncio.to_thread(self._source.start)
            except Exception as error:
                # As text: a traceback would hold the loaded weights.
                why = f"not within {self._wake_timeout_s:g} s" if limit.expired() else str(error)
                self._fail(why, is_broken=limit.expired() or not isinstance(error, OSError))
                return
            finally:
                self._waking = None
            self._failure, self._retry_s = "", self._first_retry_s
            self._idle_since = time.monotonic()
            self._on_change(self._core)
            self._awake.set()
        log.info("awake after %.1f s", time.monotonic() - started)

    def _fail(self, why: str, *, is_broken: bool) -> None:
        self._failure, self._is_broken = f"the model could not be woken: {why}", is_broken
        if is_broken:
            log.exception("the model could not be woken")
            return
        log.error("%s; it is tried again in %g s", self._failure, self._retry_s)
        asyncio.get_running_loop().call_later(self._retry_s, self._start_waking)
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)


def _shut_down(cores: list[EngineCore]) -> EngineStats:
    """The last of its counters. What nobody else holds is gone then: what a thread is still about
    to free would not be given back with the rest.
    """
    core = cores.pop()
    core.shutdown()
    return core.stats()


def _ended(stats: EngineStats, past: EngineStats) -> EngineStats:
    """The counters alone, of both."""
    return with_past(EngineStats(), with_past(stats, past))
