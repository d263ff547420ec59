"""The other replicas of an ingress as Serve knows them, which all are called at once.

Serve sends a call to one replica of its own choice, and behind HAProxy nothing else may choose for
an ingress. So a stream is read part by part, by calls to all. Only the one that keeps it says
more than None.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import cast

from deployments.contract.errors import Refused, RequestError
from deployments.ingress.fleet.serve_handles import ServeHandles
from deployments.ingress.streams.peers import StreamKey, StreamLostError, StreamState
from deployments.ingress.streams.replay_buffer import StreamPart

PART_BYTES = 1 << 20  # Serve's gRPC transport refuses 4 MiB
PART_WAIT_S = 2.0  # of that replica, for something to come; shorter than a call may take
READ_INTERVAL_S = 0.05  # what comes meanwhile goes in one part


class ServePeers:
    """Implements StreamPeers, by calls of methods of ProtocolIngress. Belongs to one event loop."""

    def __init__(self, application: str, deployment: str, replica_id: str) -> None:
        self._application = application
        self._deployment = deployment
        self._replica_id = replica_id
        self._handles = ServeHandles()

    async def find(self, owner: str, names: Sequence[str]) -> list[StreamState]:
        answers = await self._broadcast("kept_streams", owner, list(names))
        states = (state for answer in answers for state in cast(list[StreamState], answer))
        return [state for state in states if state.replica_id != self._replica_id]

    async def stop(self, key: StreamKey, before: float) -> None:
        await self._broadcast("stop_stream", self._replica_id, key, before)

    async def read(
        self, replica_id: str, key: StreamKey, offset: int
    ) -> AsyncGenerator[StreamPart, None]:
        while True:
            answers = await self._broadcast("read_stream", replica_id, key, offset)
            said = [answer for answer in answers if answer is not None]
            if not said:
                raise StreamLostError(f"{replica_id} said nothing")
            if isinstance(said[0], RequestError):
                raise Refused(said[0])
            part = cast(StreamPart, said[0])
            yield part
            if part.is_done:
                return
            offset += len(part.data)
            if len(part.data) < PART_BYTES:
                await asyncio.sleep(READ_INTERVAL_S)

    async def _broadcast(self, method: str, *args: object) -> list[object]:
        return await self._handles.broadcast(self._application, self._deployment, method, *args)
