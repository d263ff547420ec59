"""A number that rises with every change of a model, and those who wait for the next one."""

import asyncio
import time
from dataclasses import replace

from deployments.wire import ModelStatus

PROGRESS_INTERVAL_S = 0.2  # a load's progress alone is told no more often


class ChangeFeed:
    """Belongs to one event loop. A router's numbers are not those of its predecessor."""

    def __init__(self) -> None:
        self.version = time.time_ns() // 1_000_000
        self._next = asyncio.Event()
        self._told: dict[str, ModelStatus] = {}
        self._told_at: dict[str, float] = {}
        self._late: dict[str, ModelStatus] = {}

    def tell(self, status: ModelStatus) -> None:
        """Of a model whose status may have changed."""
        name, told = status.name, self._told.get(status.name)
        if status == told:
            return
        rest = self._told_at.get(name, 0.0) + PROGRESS_INTERVAL_S - time.monotonic()
        if told is not None and rest > 0 and _without_progress(status) == _without_progress(told):
            self._tell_later(status, rest)
        else:
            self._tell_now(status)

    def forget(self, name: str) -> None:
        """A model that is no longer listed."""
        self._told.pop(name, None)
        self._told_at.pop(name, None)
        self._late.pop(name, None)
        self._bump()

    async def wait(self, version: int, wait_s: float) -> None:
        """Until the version is another one than this, or the time is over."""
        try:
            async with asyncio.timeout(wait_s):
                while self.version == version:
                    await self._next.wait()
        except TimeoutError:
            return

    def _tell_now(self, status: ModelStatus) -> None:
        self._late.pop(status.name, None)
        self._told[status.name], self._told_at[status.name] = status, time.monotonic()
        self._bump()

    def _tell_later(self, status: ModelStatus, rest: float) -> None:
        if status.name not in self._late:
            asyncio.get_running_loop().call_later(rest, self._tell_late, status.name)
        self._late[status.name] = status

    def _tell_late(self, name: str) -> None:
        if name in self._late:  # else something else of it was told meanwhile
            self._tell_now(self._late[name])

    def _bump(self) -> None:
        self.version += 1
        self._next.set()
        self._next = asyncio.Event()


def _without_progress(status: ModelStatus) -> ModelStatus:
    return replace(status, progress=None)
