"""A version that rises with every change of a model, and calls that wait for the next one."""

import asyncio
import time
from dataclasses import replace

from deployments.contract.model_status import ModelStatus

PROGRESS_INTERVAL_S = 0.2  # at least between two changes that are only progress of a load


class ChangeFeed:
    """Belongs to one event loop. A router's numbers are not those of its predecessor."""

    def __init__(self) -> None:
        self.version = time.time_ns() // 1_000_000
        self._next = asyncio.Event()
        self._published: dict[str, ModelStatus] = {}
        self._published_at: dict[str, float] = {}
        self._delayed: dict[str, ModelStatus] = {}

    def publish(self, status: ModelStatus) -> None:
        """The status of a model, which may have changed."""
        name, published = status.name, self._published.get(status.name)
        if status == published:
            return
        rest = self._published_at.get(name, 0.0) + PROGRESS_INTERVAL_S - time.monotonic()
        if (
            published is not None
            and rest > 0
            and _without_progress(status) == _without_progress(published)
        ):
            self._publish_later(status, rest)
        else:
            self._publish(status)

    def forget(self, name: str) -> None:
        """The model is no longer listed."""
        self._published.pop(name, None)
        self._published_at.pop(name, None)
        self._delayed.pop(name, None)
        self._advance()

    async def wait(self, version: int, wait_s: float) -> None:
        """Waits until the version is another than this, or for `wait_s`."""
        try:
            async with asyncio.timeout(wait_s):
                while self.version == version:
                    await self._next.wait()
        except TimeoutError:
            return

    def _publish(self, status: ModelStatus) -> None:
        self._delayed.pop(status.name, None)
        self._published[status.name], self._published_at[status.name] = status, time.monotonic()
        self._advance()

    def _publish_later(self, status: ModelStatus, rest: float) -> None:
        if status.name not in self._delayed:
            asyncio.get_running_loop().call_later(rest, self._publish_delayed, status.name)
        self._delayed[status.name] = status

    def _publish_delayed(self, name: str) -> None:
        if name in self._delayed:  # else another change of it was published meanwhile
            self._publish(self._delayed[name])

    def _advance(self) -> None:
        self.version += 1
        self._next.set()
        self._next = asyncio.Event()


def _without_progress(status: ModelStatus) -> ModelStatus:
    return replace(status, progress=None)
