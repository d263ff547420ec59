"""The fleet when a sequence's replicas die, and when models are not up."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.model_status import LoadProgress, ModelState
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision
from deployments.ingress.fleet.serve_handles import unavailable
from deployments.ingress.settings import IngressSettings
from kv.arrivals import PrefixHolder
from tests.ingress.fleet.actors import MODEL, UP, Actors, Fate, produces, status, token_at
from tests.text.cards import card

LENGTH = 12
WHOLE = [token_at(index) for index in range(LENGTH)]
ASKED = GenerationRequest(
    request_id="r", prompt_ids=tuple(range(40)), max_tokens=LENGTH, session="s"
)
ALONE = replace(ASKED, prompt_logprobs=0)  # on a stream of its own
LOADING = status(
    ModelState.LOADING, progress=LoadProgress(stage="weights", value=0.4), message="2 of 5 files"
)


async def said_of(actors: Actors, asked: GenerationRequest = ALONE) -> list[TokenEvent]:
    fleet = actors.fleet()
    return [event async for event in fleet.generate(await fleet.card(MODEL), asked)]


def answered(actors: Actors, asked: GenerationRequest = ALONE) -> list[TokenEvent]:
    """The events, of which the last one alone is an end."""
    events = asyncio.run(said_of(actors, asked))
    assert [event.finish_reason is not None for event in events[:-1]] == [False] * (len(events) - 1)
    assert events[-1].finish_reason is not None
    return events


def ids(events: list[TokenEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


def refusal_of(actors: Actors) -> RequestError:
    with pytest.raises(Refused) as caught:
        asyncio.run(said_of(actors))
    return caught.value.error


def counted(actors: Actors, phase: str) -> float | None:
    labels = {"model": MODEL, "phase": phase}
    return actors.metrics.registry.get_sample_value("manta_failovers_total", labels)


@pytest.mark.parametrize(
    "death",
    [
        ActorDiedError(),
        ActorUnavailableError("gone", None),
        asyncio.CancelledError(),
        DeploymentUnavailableError("d"),
    ],
    ids=lambda death: type(death).__name__,
)
def test_a_sequence_goes_on_where_its_replica_died(death: BaseException) -> None:
    actors = Actors(
        produces(3, death, cached=16), produces(7, death, cached=32), produces(cached=32)
    )
    events = answered(actors)
    assert ids(events) == WHOLE
    assert {event.cached_tokens for event in events} == {16}
    asked = [request for _, request in actors.model.requests]
    assert [len(request.produced_ids) for request in asked] == [0, 3, 7]
    assert len({request.request_id for request in asked}) == 3
    assert counted(actors, "mid_stream") == 2
    assert counted(actors, "before_first_token") is None


def test_an_engine_that_stops_hands_its_sequences_on() -> None:
    stopped = RequestError(ErrorKind.UNAVAILABLE, "the engine stopped")

    actors = Actors(refuses(stopped), produces())
    assert ids(answered(actors)) == WHOLE
    assert counted(actors, "before_first_token") == 1


def test_a_stream_that_ends_without_an_end_goes_on() -> None:
    async def breaks_off(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        yield TokenEvent(token_ids=(token_at(0),))

    actors = Actors(breaks_off, produces())
    assert ids(answered(actors)) == WHOLE


def test_a_replica_that_was_lost_is_not_asked_for_again() -> None:
    actors = Actors(produces(2, ActorDiedError()), produces())
    actors.router.choices = [RoutingDecision("a", True)]
    answered(actors)
    assert [pin for pin, _ in actors.model.requests] == ["a", None]


def test_who_holds_the_prefix_is_told_to_the_replica_that_was_chosen_alone() -> None:
    actors, holder = Actors(produces(2, ActorDiedError()), produces()), PrefixHolder("b", 20)
    actors.router.choices = [RoutingDecision("a", True, holder=holder)]
    answered(actors)
    told = [(pin, request.prefix_holder) for pin, request in actors.model.requests]
    assert told == [("a", holder), (None, None)]


def test_the_router_hears_of_every_attempt_by_its_own_name() -> None:
    actors = Actors(produces(2, ActorDiedError()), produces())
    answered(actors)
    assert actors.router.asked == [("r-0", "s"), ("r-1", "s")]


async def test_only_what_did_not_end_is_cancelled_and_aborted() -> None:
    actors = Actors(produces(2, ActorDiedError()), produces())
    await said_of(actors)
    await asyncio.sleep(0)
    assert actors.model.cancelled == 1
    assert actors.model.aborted == ["r-0"]


def test_a_client_that_leaves_ends_its_attempt() -> None:
    actors = Actors()

    async def leaves() -> None:
        fleet = actors.fleet()
        events = fleet.generate(await fleet.card(MODEL), ASKED)
        await anext(events)
        await events.aclose()

    asyncio.run(leaves())
    assert actors.model.cancelled == 1


async def test_a_cancelled_request_is_not_taken_for_a_lost_one() -> None:
    async def hangs(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        yield TokenEvent(token_ids=(token_at(0),))
        await asyncio.Event().wait()

    actors = Actors(hangs)
    fleet = actors.fleet()
    events = fleet.generate(await fleet.card(MODEL), ASKED)
    await anext(events)
    going_on = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    going_on.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going_on
    assert len(actors.model.requests) == 1


def test_what_breaks_or_overloads_is_not_tried_again() -> None:
    actors = Actors(BackPressureError(num_queued_requests=1, max_queued_requests=1))
    assert refusal_of(actors).kind is ErrorKind.OVERLOADED
    assert len(actors.model.requests) == 1


def refuses(error: RequestError) -> Fate:
    async def fate(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        yield TokenEvent(finish_reason=FinishReason.ERROR, error=error)

    return fate


FULL = RequestError(ErrorKind.OVERLOADED, "64 requests are waiting already")


def test_who_lost_a_replica_is_not_turned_away_by_a_full_one() -> None:
    actors = Actors(produces(3, ActorDiedError()), refuses(FULL), produces())
    assert ids(answered(actors)) == WHOLE
    assert len(actors.model.requests) == 3


def test_who_comes_to_a_full_replica_is_told_so_at_once() -> None:
    actors = Actors(refuses(FULL))
    assert refusal_of(actors) == FULL
    assert len(actors.model.requests) == 1
    assert actors.model.cancelled == 0


def test_what_broke_inside_a_replica_is_not_tried_again_whatever_its_type() -> None:
    broke = RayTaskError("generate", "traceback", TimeoutError()).as_instanceof_cause()
    assert isinstance(broke, TimeoutError)
    actors = Actors(broke)
    with pytest.raises(RayTaskError):
        asyncio.run(said_of(actors))
    assert len(actors.model.requests) == 1


def test_a_name_that_became_an_alias_is_a_model_that_was_replaced() -> None:
    actors = Actors()
    actors.router.choices = [RoutingDecision(None, False)]
    actors.router.wants = [UP, status(ModelState.READY, "other", aliases=(MODEL,))]
    refusal = refusal_of(actors)
    assert refusal.kind is ErrorKind.MODEL_REPLACED
    assert "'other'" in refusal.message
    assert actors.model.requests == []


def test_a_model_that_was_unloaded_meanwhile_is_wanted_again() -> None:
    actors = Actors()
    actors.router.wants = [UP, LOADING, UP]
    actors.router.choices = [RoutingDecision(None, False), RoutingDecision(None, True)]
    assert ids(answered(actors)) == WHOLE
    assert [model for model, _ in actors.router.wanted] == [MODEL] * 3
    assert counted(actors, "before_first_token") is None


def test_a_model_whose_application_is_gone_is_wanted_again() -> None:
    actors = Actors(DeploymentUnavailableError("d"), produces())
    assert ids(answered(actors)) == WHOLE
    assert len(actors.router.wanted) == 2


def test_a_sequence_that_began_before_an_unload_does_not_load_its_model_again() -> None:
    unloaded = unavailable("The model was unloaded while a request needed it").error
    actors = Actors(produces(3, ActorDiedError()), produces())
    actors.router.choices = [
        RoutingDecision("a", True, unloads=4),
        RoutingDecision(None, False, unloads=5),
    ]
    actors.router.wants = [UP, unloaded]
    assert refusal_of(actors) == unloaded
    assert actors.router.unloads == [None, 4]


def test_who_waits_for_a_model_knows_of_the_unloads_before_it_came() -> None:
    actors = Actors()
    actors.router.wants = [replace(LOADING, unloads=4), replace(LOADING, unloads=5), UP]
    assert ids(answered(actors)) == WHOLE
    assert actors.router.unloads == [None, 4, 4]


async def test_twenty_requests_for_a_model_that_is_not_up_want_it_once() -> None:
    actors = Actors()
    actors.router.wants = [LOADING, UP]
    actors.router.gate = asyncio.Event()
    fleet = actors.fleet()
    asking = [asyncio.create_task(fleet.card(MODEL)) for _ in range(20)]
    await actors.router.joined.wait()
    assert actors.router.waiting == 1
    actors.router.gate.set()
    assert await asyncio.gather(*asking) == [card()] * 20
    assert len(actors.router.wanted) == 2
    assert len(set(actors.router.wanted)) == 1
    assert actors.model.cards_sent == 1
    waited = actors.metrics.registry.get_sample_value
    assert waited("manta_model_wait_seconds_count", {"model": MODEL}) == 20


async def test_a_model_is_wanted_until_the_last_of_those_who_wait_has_left() -> None:
    actors = Actors()
    actors.router.gate = asyncio.Event()
    fleet = actors.fleet()
    asking = [asyncio.create_task(fleet.card(MODEL)) for _ in range(3)]
    await actors.router.joined.wait()
    for task in asking:
        assert actors.router.waiting == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await actors.router.left.wait()
    assert actors.router.waiting == 0
    assert len(actors.router.wanted) == 1


async def test_who_waits_after_others_have_left_is_not_taken_for_them() -> None:
    actors = Actors()
    actors.router.gate = asyncio.Event()
    fleet = actors.fleet()
    for _ in range(2):
        asking = asyncio.create_task(fleet.card(MODEL))
        await actors.router.joined.wait()
        actors.router.joined.clear()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    first, second = actors.router.wanted
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_a_load_that_takes_too_long_is_told_with_its_progress() -> None:
    actors = Actors()
    actors.router.wants = [LOADING]

    async def ask() -> None:
        fleet = actors.fleet(IngressSettings(load_timeout_s=0.5))
        await fleet.statuses()  # finds the router, which takes a thread
        await fleet.card(MODEL)

    with pytest.raises(Refused) as caught:
        asyncio.run(ask())
    assert caught.value.error.kind is ErrorKind.UNAVAILABLE
    assert "is still loading (2 of 5 files, weights 40%)" in caught.value.error.message


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (status(ModelState.FAILED, message="no such file"), ErrorKind.UNAVAILABLE, "no such file"),
        (
            RequestError(ErrorKind.MODEL_NOT_FOUND, "The model 'x' does not exist", "model"),
            ErrorKind.MODEL_NOT_FOUND,
            "does not exist",
        ),
    ],
    ids=["failed", "unknown"],
)
def test_what_can_not_come_up_is_refused_at_once(
    answer: RequestError, kind: ErrorKind, words: str
) -> None:
    actors = Actors()
    actors.router.wants = [answer]
    with pytest.raises(Refused) as caught:
        asyncio.run(_card(actors))
    assert caught.value.error.kind is kind
    assert words in caught.value.error.message
    assert len(actors.router.wanted) == 1


def test_a_card_is_fetched_from_another_replica_when_one_dies() -> None:
    actors = Actors()
    actors.model.card_deaths = [ActorDiedError(), asyncio.CancelledError()]
    assert asyncio.run(_card(actors)) == card()
    assert len(actors.router.wanted) == 3


def test_a_model_that_sleeps_has_a_card() -> None:
    actors = Actors()
    actors.router.wants = [status(ModelState.SLEEPING)]
    assert asyncio.run(_card(actors)) == card()


def test_all_models_are_asked_at_once_whether_they_serve() -> None:
    actors = Actors()
    actors.router.statuses = [UP, status(ModelState.SLEEPING, "a"), status(ModelState.FAILED, "b")]

    async def ask() -> bool:
        fleet = actors.fleet()
        await fleet.statuses()
        actors.model.meeting = asyncio.Barrier(2)
        async with asyncio.timeout(5):
            return await fleet.is_serving()

    assert asyncio.run(ask())


async def test_what_the_router_would_not_do_is_refused() -> None:
    actors = Actors()
    fleet = actors.fleet()
    await fleet.load("m")
    await fleet.reload()
    actors.router.refusal = unavailable("no").error
    with pytest.raises(Refused, match="no"):
        await fleet.load("m")
    assert actors.router.commands == [("load", "m"), ("reload",), ("load", "m")]


async def _card(actors: Actors) -> object:
    return await actors.fleet().card(MODEL)
