"""The last bytes of one stream, for readers that come late, leave and return.

Whoever writes never waits: the oldest bytes go when there are too many.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

from deployments.contract.errors import Refused, RequestError, refused

PIECE_BYTES = 64 << 10  # what a reader that does not read has in its connection


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Bytes of a stream from an offset on, maybe none, and whether it has begun and ended."""

    data: bytes
    is_begun: bool
    is_done: bool


class ReplayBuffer:
    """Offsets count from the stream's first byte. Belongs to one event loop."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept = bytearray()
        self._changed = asyncio.Event()
        self._failure: RequestError | None = None
        self.total = 0
        self.completed_at = 0  # 0 while the stream runs

    @property
    def is_begun(self) -> bool:
        return self.total > 0

    @property
    def is_done(self) -> bool:
        return self.completed_at > 0

    def append(self, data: bytes) -> None:
        self._kept += data
        self.total += len(data)
        del self._kept[: max(len(self._kept) - self._capacity, 0)]
        self._wake()

    def finish(self, failure: RequestError | None = None) -> None:
        """Readers are refused with `failure` after the last byte."""
        self.completed_at = int(time.time())
        self._failure = failure
        self._wake()

    async def until_begun(self) -> None:
        """Waits for the first byte or the end. Raises Refused if a stream fails without a byte."""
        while not self.is_begun and not self.is_done:
            await self._changed.wait()
        if not self.is_begun and self._failure is not None:
            raise Refused(self._failure)

    def check(self, offset: int) -> None:
        """Raises Refused if the bytes at `offset` are no longer kept."""
        if offset < self.total - len(self._kept):
            raise refused("Stream offset lost, please restart", "from")

    async def read(self, offset: int) -> AsyncGenerator[bytes, None]:
        """Yields the bytes from `offset` to the end, in pieces.

        Raises Refused for lost bytes and failed streams.
        """
        while offset < self.total or not self.is_done:
            self.check(offset)
            if offset < self.total:
                start = offset - self.total + len(self._kept)
                data = bytes(self._kept[start : start + PIECE_BYTES])
                offset = min(offset + len(data), self.total)
                yield data
            else:
                await self._changed.wait()
        if self._failure is not None:
            raise Refused(self._failure)

    async def part(self, offset: int, wait_s: float, max_bytes: int) -> StreamPart:
        """Returns the bytes from `offset` on, once there are any, at the end, or after `wait_s`.

        Raises Refused for lost bytes and failed streams.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while offset >= self.total and not self.is_done:
                    await self._changed.wait()
        self.check(offset)
        start = offset - self.total + len(self._kept)
        data = bytes(self._kept[start : start + max_bytes])
        is_done = self.is_done and offset + len(data) >= self.total
        if is_done and self._failure is not None:
            if not data:
                raise Refused(self._failure)
            is_done = False  # the next part is the failure
        return StreamPart(data, self.is_begun, is_done)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
