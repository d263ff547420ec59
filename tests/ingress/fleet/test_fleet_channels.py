"""Sequences that share a replica's channel are as safe as those with a stream of their own."""

from dataclasses import replace

from ray.exceptions import ActorDiedError

from deployments.contract.routing import RoutingDecision
from tests.ingress.fleet.actors import MODEL, Actors, produces
from tests.ingress.fleet.test_fleet import ASKED, WHOLE, answered, counted, ids


def test_a_sequence_of_a_channel_goes_on_where_its_replica_died() -> None:
    actors = Actors(produces(3, ActorDiedError()), produces(7, ActorDiedError()), produces())
    actors.router.choices = [RoutingDecision(name, True) for name in "abc"]
    assert ids(answered(actors, ASKED)) == WHOLE
    assert [pin for pin, _ in actors.model.requests] == ["a", "b", "c"]
    assert actors.model.aborted == ["r-0", "r-1"]
    assert counted(actors, "mid_stream") == 2


async def test_what_a_prompt_is_worth_has_a_stream_of_its_own() -> None:
    """It may be larger than a message that others wait for should be."""
    actors = Actors()
    actors.router.choices = [RoutingDecision("a", True)]
    fleet, request = actors.fleet(), replace(ASKED, prompt_logprobs=1)
    assert ids([event async for event in fleet.generate(await fleet.card(MODEL), request)]) == WHOLE
    assert (actors.model.opened, len(actors.model.requests)) == (0, 1)
