"""Thinking that a client has ended stays ended on the replica that goes on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from ray.exceptions import ActorDiedError

from deployments.wire import THINKING_OVER, GenerationRequest, ThinkingBudget, TokenEvent
from tests.ingress.fleet.actors import MODEL, Actors, produces, token_at

THINKING = ThinkingBudget(tokens=90, start_ids=(5,), end_ids=(7,), open=True)
ASKED = GenerationRequest(request_id="r", prompt_ids=(1, 2), max_tokens=12, thinking=THINKING)


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
    assert ids == [token_at(place) for place in range(12)]
    assert all(event.token_ids for event in events)
    asked = [request.thinking for _, request in actors.model.requests]
    assert asked == [THINKING, replace(THINKING, tokens=0)]
