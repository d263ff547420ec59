"""The other replicas of an ingress as Serve knows them, and calls that reach a certain one."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import cast

from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter
from ray.serve.request_router import PendingRequest, RunningReplica

from deployments.ingress.fleet.liveness import ReplicaSilentError, within_timeout
from deployments.ingress.fleet.serve_handles import UNREACHABLE, ServeHandles, cancelled_elsewhere
from deployments.ingress.streams.peers import HolderLostError, Item, StreamKey, StreamState


class HolderRouter(PowerOfTwoChoicesRequestRouter):  # type: ignore[misc]  # Ray ships no types
    """A call whose first argument is the id of a replica goes there. For all others, HTTP requests
    among them, the choice is Serve's own; so it is for a replica that is gone, as any other says
    as well that it does not keep its streams.
    """

    # Serve pickles the class with all that it uses, so that no class of this module is the same
    # one in here.
    async def _choose_replica_for_request(
        self, pending_request: PendingRequest, *, is_retry: bool = False
    ) -> RunningReplica:
        # Not by `choose_replicas`: the base class gives what that finds to any call that waits.
        first = pending_request.args[0] if pending_request.args else None
        if isinstance(first, str) and not is_retry:
            for replica in self._replicas.values():
                if replica.replica_id.unique_id == first:
                    return replica
        return await super()._choose_replica_for_request(pending_request, is_retry=is_retry)


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
        return [state for state in states if state.holder != self._replica_id]

    async def stop(self, key: StreamKey, before: float) -> None:
        await self._broadcast("stop_stream", self._replica_id, key, before)

    async def read(self, holder: str, key: StreamKey, offset: int) -> AsyncGenerator[Item, None]:
        try:
            handle = await self._handles.get(self._application, self._deployment)
            reading = handle.options(stream=True, method_name="read_stream").remote(
                holder, key, offset
            )
            try:
                with suppress(StopAsyncIteration):
                    while True:
                        with cancelled_elsewhere():
                            item = await within_timeout(anext(reading))
                        yield item
            finally:
                reading.cancel()
        except (*UNREACHABLE, ReplicaSilentError) as error:
            raise HolderLostError(repr(error)) from error

    async def _broadcast(self, method: str, *args: object) -> list[object]:
        return await self._handles.broadcast(self._application, self._deployment, method, *args)
