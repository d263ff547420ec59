"""Kept streams of the other replicas of a deployment: who keeps one, and its bytes from there.

A client that comes back may reach any replica. That one asks the others, and passes the bytes on.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.http.sse import StreamType
from deployments.ingress.streams.replay_buffer import StreamPart

StreamKey = tuple[str, str]  # the owner, and its name of the conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """replica_id: the id of the replica that keeps it, "" for this one.
    stream_type: of its bytes.
    began, completed_at: in seconds of Unix time; the latter is 0 while it runs.
    """

    name: str
    replica_id: str
    stream_type: StreamType
    total: int
    began: float
    completed_at: int


class StreamLostError(Exception):
    """The replica that keeps a stream does not answer any more."""


class StreamPeers(Protocol):
    """The other replicas. One that does not answer keeps nothing."""

    async def find(self, owner: str, names: Sequence[str]) -> list[StreamState]: ...

    async def stop(self, key: StreamKey, before: float) -> None:
        """Stops what began before that, in seconds of Unix time."""
        ...

    def read(
        self, replica_id: str, key: StreamKey, offset: int
    ) -> AsyncGenerator[StreamPart, None]:
        """Reads a stream from an offset to the end.

        Raises StreamLostError, and Refused as a ReplayBuffer does.
        """
        ...


def no_stream() -> Refused:
    message = "There is no stream of this conversation"
    return Refused.of_kind(ErrorKind.NOT_FOUND, message, "conv_id")
