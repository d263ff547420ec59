"""Kept streams of the other replicas of a deployment: who keeps one, and its bytes from there.

A client that comes back may reach any replica. That one asks the others, and passes the bytes on.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from deployments.ingress.streams.replay_buffer import ReplayBuffer
from deployments.wire import ErrorKind, Refused, RequestError

HEARTBEAT_S = 5.0  # of a holder whose stream says nothing
StreamKey = tuple[str, str]  # the owner, and its name of the conversation
# Bytes of a stream, of which the first ones, maybe none, say that it has begun; None is a
# heartbeat, and an error the end.
Item = bytes | RequestError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """holder: the id of the replica that keeps it, "" for this one.
    began, completed_at: in seconds of Unix time; the latter is 0 while it runs.
    """

    name: str
    holder: str
    total: int
    began: float
    completed_at: int


class HolderLostError(Exception):
    """The replica that keeps a stream does not answer any more."""


class StreamPeers(Protocol):
    """The other replicas. One that does not answer keeps nothing."""

    async def find(self, owner: str, names: Sequence[str]) -> list[StreamState]: ...

    async def stop(self, key: StreamKey, before: float) -> None:
        """Stops what began before that, in seconds of Unix time."""
        ...

    def read(self, holder: str, key: StreamKey, offset: int) -> AsyncGenerator[Item, None]:
        """What `items` yields there. Raises HolderLostError."""
        ...


def no_stream() -> Refused:
    message = "There is no stream of this conversation"
    return Refused.of_kind(ErrorKind.NOT_FOUND, message, "conv_id")


async def items(replay: ReplayBuffer, offset: int) -> AsyncGenerator[Item, None]:
    """A stream from an offset on, for a replica that passes it on."""
    try:
        while not await _has_begun(replay):
            yield None
        replay.check(offset)
        yield b""
        async with aclosing(replay.read(offset, HEARTBEAT_S)) as pieces:
            async for piece in pieces:
                yield piece or None
    except Refused as refusal:
        yield refusal.error


async def _has_begun(replay: ReplayBuffer) -> bool:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await replay.until_begun()
    except TimeoutError:
        return False
    return True
