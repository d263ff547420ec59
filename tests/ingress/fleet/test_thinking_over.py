"""Thinking that a client has ended stays ended on the replica that goes on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from ray.exceptions import ActorDiedError

from deployments.contract.events import THINKING_OVER, TokenEvent
from deployments.contract.requests import GenerationRequest, ThinkingBudget
from tests.ingress.fleet.actors import MODEL, Actors, produces, token_at

THINKING = ThinkingBudget(tokens=90, start_ids=(5,), end_ids=(7,), open=True)
ASKED = GenerationRequest(
    request_id="r-0",
    prompt_ids=(1, 2),
    max_tokens=12,
    thinking=THINKING,
    response_id="r",
    prompt_logprobs=0,  # on a stream of its own
)
SPENT = replace(THINKING, tokens=0)


async def is_told(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    yield TokenEvent(token_ids=(token_at(0),))
    yield THINKING_OVER
    raise ActorDiedError


async def said_of(actors: Actors) -> list[TokenEvent]:
    fleet = actors.fleet()
    return [event async for event in fleet.generate(await fleet.card(MODEL), ASKED)]


def test_the_resumed_request_has_no_budget_left_and_the_client_is_told_nothing() -> None:
    actors = Actors(is_told, produces())
    events = asyncio.run(said_of(actors))
    ids = [token_id for event in events for token_id in event.token_ids]
    assert ids == [token_at(index) for index in range(12)]
    assert all(event.token_ids for event in events)
    asked = [request.thinking for _, request in actors.model.requests]
    assert asked == [THINKING, SPENT]


def thoughts_asked(actors: Actors) -> list[ThinkingBudget | None]:
    return [request.thinking for _, request in actors.model.requests]


async def test_an_order_that_dies_with_the_replica_holds_on_the_next_one() -> None:
    """The replica got it, and says nothing of it any more."""
    actors = Actors(produces(1, ActorDiedError()), produces())
    fleet = actors.fleet()
    events = fleet.generate(await fleet.card(MODEL), ASKED)
    first = await anext(events)
    assert first.token_ids
    assert fleet.end_thoughts("r", [MODEL])
    rest = [event async for event in events]
    assert sum(len(event.token_ids) for event in (first, *rest)) == 12
    assert not fleet.end_thoughts("r", [MODEL]), "it has ended"
    assert thoughts_asked(actors) == [THINKING, SPENT]
    assert actors.model.thoughts_ended.empty(), "who asks for the rest asks for no thinking"


async def test_an_order_that_comes_while_a_replica_is_chosen_is_told_to_it_once() -> None:
    """It was asked for the rest before, and did not have it yet when all replicas were told."""

    async def read(events: AsyncIterator[TokenEvent]) -> None:
        async for _ in events:
            pass

    actors = Actors(produces())
    chosen, actors.router.choosing = actors.router.chosen, asyncio.Event()
    fleet = actors.fleet()
    card = await fleet.card(MODEL)
    reading = asyncio.create_task(read(fleet.generate(card, ASKED)))
    await chosen.wait()
    assert fleet.end_thoughts("r", [MODEL])
    actors.router.choosing.set()
    await reading
    assert await actors.model.thoughts_ended.get() == ("r",)
    assert thoughts_asked(actors) == [THINKING]
    assert actors.model.thoughts_ended.empty()


async def test_an_order_is_for_one_response_of_the_models_that_it_names() -> None:
    actors = Actors(produces())
    fleet = actors.fleet()
    unbounded = replace(ASKED, thinking=None)
    for asked, response_id, model in (
        (ASKED, "s", MODEL),
        (ASKED, "r", "other"),
        (unbounded, "r", MODEL),
    ):
        events = fleet.generate(await fleet.card(MODEL), asked)
        await anext(events)
        assert not fleet.end_thoughts(response_id, [model])
        await events.aclose()
