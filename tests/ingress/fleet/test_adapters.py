"""A name asks for what the router says now, and a request that runs keeps what it has."""

import asyncio
from dataclasses import replace

import pytest
from ray.exceptions import ActorDiedError

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.model_status import ModelState
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision
from deployments.contract.served_adapters import AdapterTable, ServedAdapter, contents
from kv.content import Content
from tests.ingress.fleet.actors import MODEL, Actors, produces, status
from tests.ingress.fleet.test_fleet import ASKED, WHOLE

POLITE = ServedAdapter(id=0, name="polite", path="/p", digest=b"p", rank=4)
TERSE = ServedAdapter(id=1, name="terse", path="/t", digest=b"t", rank=4)
BOTH, ONE, NONE = (
    AdapterTable.from_adapters([POLITE, TERSE]),
    AdapterTable.from_adapters([TERSE]),
    AdapterTable(),
)
UNKNOWN = RequestError(ErrorKind.MODEL_NOT_FOUND, "The model 'polite' does not exist", "model")


def actors_with(*choices: AdapterTable | None) -> Actors:
    """Each choice of a replica tells the table that is its argument; the model has BOTH first."""
    actors = Actors(produces(3, ActorDiedError()), produces())
    actors.router.wants = [status(ModelState.READY, replicas=1, adapters=BOTH)]
    actors.router.choices = [RoutingDecision(None, True, adapters=table) for table in choices]
    return actors


async def answer(actors: Actors, model: str) -> list[int]:
    fleet = actors.fleet()
    card = await fleet.card(model)
    assert card.answers_as == model
    content = Content(adapters=contents(card.adapters.implied))
    events = fleet.generate(card, replace(ASKED, content=content))
    return [token_id async for event in events for token_id in event.token_ids]


def requests(actors: Actors) -> list[GenerationRequest]:
    return [request for _, request in actors.model.requests]


def test_a_request_goes_on_with_its_adapter_when_its_replica_dies() -> None:
    actors = actors_with(None)
    assert asyncio.run(answer(actors, "polite")) == WHOLE
    assert [request.content.adapters for request in requests(actors)] == [(POLITE.scaled(1.0),)] * 2


def test_an_adapter_that_goes_in_mid_stream_disturbs_nobody() -> None:
    actors = actors_with(None, ONE)  # gone before the second replica is chosen
    assert asyncio.run(answer(actors, "polite")) == WHOLE
    assert len(requests(actors)) == 2


async def test_a_request_for_an_adapter_that_has_just_gone_is_prepared_again() -> None:
    actors = actors_with(ONE)
    fleet = actors.fleet()
    card = await fleet.card("polite")
    content = Content(adapters=contents(card.adapters.implied))
    with pytest.raises(Refused) as caught:
        await anext(fleet.generate(card, replace(ASKED, content=content)))
    assert caught.value.error.kind is ErrorKind.MODEL_REPLACED
    actors.router.wants = [UNKNOWN]
    with pytest.raises(Refused) as missing:  # the name is asked for anew, and never plain
        await fleet.card("polite")
    assert missing.value.error == UNKNOWN
    assert not requests(actors)


@pytest.mark.parametrize(
    ("model", "later"), [("terse", ONE), (MODEL, NONE), (f"{MODEL}:terse", ONE), (MODEL, ONE)]
)
def test_a_request_does_not_care_for_changes_of_other_adapters(
    model: str, later: AdapterTable
) -> None:
    actors = actors_with(later)
    assert asyncio.run(answer(actors, model)) == WHOLE


async def test_a_request_after_a_change_knows_it() -> None:
    actors = actors_with(None)
    actors.model.fates = [produces()]
    actors.router.wants = [status(ModelState.READY, replicas=1, adapters=ONE)]
    fleet = actors.fleet()
    for change in (BOTH, None):
        actors.router.choices = [RoutingDecision(None, True, adapters=change)]
        card = await fleet.card(MODEL)
        async for _ in fleet.generate(card, ASKED):
            pass
        actors.router.wants = [status(ModelState.READY, replicas=1, adapters=BOTH)]
    assert actors.router.tables == [ONE.version, BOTH.version]
