"""Actions on slots: pinned to the replica that has the slot, or to the one of its next request."""

import asyncio

import pytest
from ray.exceptions import ActorDiedError

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.routing import RoutingDecision
from deployments.contract.slots import SlotAction, SlotReport, SlotVerb
from tests.ingress.fleet.actors import MODEL, Actors

SAVE = SlotAction(verb=SlotVerb.SAVE, owner="", id_slot=1, filename="a")


def test_an_action_is_pinned_to_the_replica_of_its_slot_or_of_the_next_request() -> None:
    actors = Actors()
    actors.router.choices = [RoutingDecision("chosen", True)]

    async def run() -> None:
        fleet = actors.fleet()
        assert await fleet.act_on_slot(MODEL, SAVE, "b", "s") == SlotReport(9)
        assert not actors.router.asked
        await fleet.act_on_slot(MODEL, SAVE, None, "s")

    asyncio.run(run())
    (first, _), (second, request_id) = actors.model.slot_actions
    assert (first, second) == ("b", "chosen")
    assert actors.router.asked == [(request_id, "s")]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (RequestError(ErrorKind.INVALID_REQUEST, "no such file"), ErrorKind.INVALID_REQUEST),
        (ActorDiedError(), ErrorKind.UNAVAILABLE),
    ],
)
def test_what_a_replica_refuses_or_dies_of_is_a_refusal(
    answer: RequestError | BaseException, kind: ErrorKind
) -> None:
    actors = Actors()
    actors.model.slot_answer = answer
    with pytest.raises(Refused) as found:
        asyncio.run(actors.fleet().act_on_slot(MODEL, SAVE, "b", "s"))
    assert found.value.error.kind is kind
