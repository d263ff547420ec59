"""Sends a call to the replica that its first argument names, if that can take it.

Ray Serve runs this in every process that calls a model; the choice itself was made elsewhere.
"""

import dataclasses
import time

from ray.serve._private.common import ReplicaID
from ray.serve._private.utils import generate_request_id
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

# Until Ray gives up a lost node its replicas are only "unavailable", and each call to one waits 2 s
# for a connection.
UNAVAILABLE_S = 10.0


class PinRouter(RequestRouter):  # type: ignore[misc]  # Ray ships no types
    """Falls back to the least loaded replica when the pin is None or its replica is gone."""

    def initialize_state(self) -> None:
        self._unavailable: dict[ReplicaID, float] = {}  # since when

    def on_replica_actor_unavailable(self, replica_id: ReplicaID) -> None:
        # The base class only drops it from its cache of queues, and a broadcast puts it back.
        super().on_replica_actor_unavailable(replica_id)
        self._unavailable = {**self._lately_unavailable(), replica_id: time.monotonic()}

    def _lately_unavailable(self) -> dict[ReplicaID, float]:
        since = time.monotonic() - UNAVAILABLE_S
        return {name: at for name, at in self._unavailable.items() if at > since}

    async def _choose_replica_for_request(
        self, pending_request: PendingRequest, *, is_retry: bool = False
    ) -> RunningReplica:
        # All calls made while serving one HTTP request share an internal id, by which the base
        # class matches those that wait: without an id of its own, all but one would hang.
        if not is_retry:
            pending_request.metadata = dataclasses.replace(
                pending_request.metadata, internal_request_id=generate_request_id()
            )
        return await super()._choose_replica_for_request(pending_request, is_retry=is_retry)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        pin = None
        if pending_request is not None:
            # Else the base class spins while every replica is full.
            pending_request.routing_context.should_backoff = True
            pin = pending_request.args[0] if pending_request.args else None
        shunned = self._lately_unavailable()
        there = [r for r in candidate_replicas if r.replica_id not in shunned]
        ranked = sorted(
            there or candidate_replicas,
            key=lambda r: self.replica_queue_len_cache.get(r.replica_id) or 0,
        )
        pinned = [r for r in ranked if r.replica_id.unique_id == pin]
        return [pinned, ranked] if pinned else [ranked]
