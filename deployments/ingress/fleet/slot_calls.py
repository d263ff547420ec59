"""Sends actions on slots to the replicas that have them."""

import asyncio
import uuid

from deployments.contract.errors import Refused, RequestError
from deployments.contract.model_card import ModelCard
from deployments.contract.slots import SlotAction, SlotReport
from deployments.ingress.fleet.attempt import (
    ModelGoneError,
    ReplicaLostError,
    translate_ray_errors,
)
from deployments.ingress.fleet.router_client import RouterClient
from deployments.ingress.fleet.serve_handles import ServeHandles, call_result, unavailable

TIMEOUT_S = 600.0  # for the largest files, and for the running request of a slot


class SlotCalls:
    """Belongs to one event loop."""

    def __init__(self, handles: ServeHandles, router: RouterClient) -> None:
        self._handles, self._router = handles, router

    async def act(
        self, card: ModelCard, action: SlotAction, replica_id: str | None, session: str
    ) -> SlotReport:
        """Acts as `Cluster.act_on_slot` says. Raises Refused."""
        request_id = f"slot-{uuid.uuid4().hex}"
        if replica_id is None:
            choice = await self._router.choose(card, (), request_id, session)
            replica_id = choice.replica_id
        try:
            with translate_ray_errors():
                async with asyncio.timeout(TIMEOUT_S):
                    handle = await self._handles.model(card.name)
                    call = handle.act_on_slot.remote(replica_id, request_id, action)
                    answer: SlotReport | RequestError = await call_result(call)
        except (ReplicaLostError, ModelGoneError) as error:
            raise unavailable("The replica of the slot does not answer; try again") from error
        if isinstance(answer, RequestError):
            raise Refused(answer)
        return answer
