"""How often is tried, how long is waited, and what a name stands for while nobody can say."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from ray.exceptions import RayError

from deployments.contract.channel import HEARTBEAT
from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.events import TokenEvent
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision
from deployments.ingress.fleet import liveness
from deployments.ingress.fleet.attempt import Attempts, ModelGoneError, ReplicaLostError
from deployments.ingress.fleet.card_cache import MAX_CARDS, NAME_TTL_S, CardCache
from deployments.ingress.fleet.model_waits import ModelWaits
from deployments.ingress.fleet.prompt_hashes import OFF_LOOP_TOKENS, PromptHashes
from deployments.ingress.fleet.retries import BACKOFF_S, Retries
from deployments.ingress.fleet.router_client import ROUTER_RETRY_S, RouterClient
from deployments.ingress.settings import IngressSettings
from kv.content import Content, page_hashes
from tests.ingress.fleet.actors import MODEL, UP, Actors, Fate, status
from tests.text.cards import card

AT_ONCE = (0.0,) * 3
WATCH_S = 0.001


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def cards_of(actors: Actors, clock: Clock) -> CardCache:
    handles = actors.handles()
    router = RouterClient(handles, clock)
    waiting = ModelWaits(router, actors.metrics, pause_s=0.0)
    return CardCache(handles, router, waiting, patience_s=60.0, clock=clock)


async def lose(retries: Retries, *progressed: bool) -> None:
    for has_progressed in progressed:
        await retries.wait_after_loss(progressed=has_progressed)


def test_attempts_that_come_to_nothing_are_few() -> None:
    retries = Retries(60.0, AT_ONCE)
    asyncio.run(lose(retries, False, False, False))
    with pytest.raises(Refused, match="4 attempts") as caught:
        asyncio.run(lose(retries, False))
    assert caught.value.error.kind is ErrorKind.UNAVAILABLE


def test_an_attempt_that_got_on_begins_a_new_count() -> None:
    asyncio.run(lose(Retries(60.0, AT_ONCE), *[False, False, True] * 5))


def test_patience_is_for_the_time_without_a_replica() -> None:
    clock = Clock()
    retries = Retries(60.0, AT_ONCE, clock)
    clock.now = 50.0
    assert retries.remaining_s == 10.0
    retries.replica_found()
    assert retries.remaining_s == 60.0
    clock.now = 200.0
    assert retries.remaining_s == 0.0


def test_an_engine_that_died_is_waited_for_until_it_is_replaced() -> None:
    checks, period_s = 3, 2.0  # of health, before Serve replaces a replica
    assert sum(BACKOFF_S) / 2 > checks * period_s


@pytest.mark.parametrize(("limit", "patience"), [(None, 600.0), (5.0, 5.0), (900.0, 600.0)])
def test_no_request_waits_longer_than_it_may_take(limit: float | None, patience: float) -> None:
    settings = IngressSettings(request_timeout_s=limit, load_timeout_s=600.0)
    assert settings.patience_s == patience


async def test_all_who_watch_for_a_replica_ask_together() -> None:
    actors, clock = Actors(), Clock()
    router = RouterClient(actors.handles(), clock)
    told = []
    for _ in range(2):
        for _ in range(2):
            statuses = await asyncio.gather(*(router.status(MODEL, 2.0) for _ in range(20)))
            assert statuses == [UP] * 20
            told.append(actors.router.told)
        clock.now += 2.0
    assert told == [1, 1, 2, 2]


async def test_only_so_many_cards_are_kept() -> None:
    actors = Actors()
    cards = cards_of(actors, Clock())
    for index in [*range(MAX_CARDS + 1), MAX_CARDS, 0]:
        actors.router.wants = [status(ModelState.READY, str(index))]
        await cards.get(str(index))
    assert actors.model.cards_sent == MAX_CARDS + 2


async def test_a_silent_router_is_asked_by_one_a_second() -> None:
    actors, clock = Actors(), Clock()
    actors.router.choices = [RayError("dead")]
    router = RouterClient(actors.handles(), clock)
    asked = []
    for _ in range(3):
        for _ in range(4):
            assert await router.choose(card(), (), "r", "") == RoutingDecision(None, True)
        asked.append(len(actors.router.asked))
        clock.now += ROUTER_RETRY_S
    assert asked == [1, 2, 3]


async def test_a_router_that_is_back_is_asked_by_all() -> None:
    actors, clock = Actors(), Clock()
    advice = RoutingDecision("a", True)
    actors.router.choices = [RayError("dead"), advice]
    router = RouterClient(actors.handles(), clock)
    assert await router.choose(card(), (), "r", "") == RoutingDecision(None, True)
    clock.now += ROUTER_RETRY_S
    assert [await router.choose(card(), (), "r", "") for _ in range(3)] == [advice] * 3


async def test_queries_that_come_during_a_call_go_together_in_the_next_one() -> None:
    actors = Actors()
    actors.router.choices = [*(RoutingDecision(name, True) for name in "abcdef")]
    router = RouterClient(actors.handles())
    actors.router.choosing = asyncio.Event()
    asking = [asyncio.create_task(router.choose(card(), (), "0", ""))]
    await actors.router.chosen.wait()
    asking += [asyncio.create_task(router.choose(card(), (), str(n), "")) for n in range(1, 6)]
    asking[3].cancel()
    await asyncio.sleep(0)
    actors.router.choosing.set()
    await asyncio.wait(asking)
    choices = [await task for task in asking if not task.cancelled()]
    assert [choice.replica_id for choice in choices] == ["a", "b", "c", "d", "e"]
    assert actors.router.batches == [1, 4]
    assert [request_id for request_id, _ in actors.router.asked] == ["0", "1", "2", "4", "5"]


async def test_who_waits_behind_a_call_that_was_lost_is_told_that_any_replica_will_do() -> None:
    actors = Actors()
    actors.router.choices = [RayError("dead")]
    router = RouterClient(actors.handles())
    actors.router.choosing = asyncio.Event()
    asking = [asyncio.create_task(router.choose(card(), (), "0", ""))]
    await actors.router.chosen.wait()
    asking += [asyncio.create_task(router.choose(card(), (), str(n), "")) for n in range(1, 6)]
    await asyncio.sleep(0)
    actors.router.choosing.set()
    assert await asyncio.gather(*asking) == [RoutingDecision(None, True)] * 6
    assert actors.router.batches == [1]


async def test_the_default_model_is_asked_for_again_after_a_while() -> None:
    actors, clock = Actors(), Clock()
    cards = cards_of(actors, clock)
    wanted = []
    for later_s in (0.0, NAME_TTL_S / 2, NAME_TTL_S, 0.0):
        clock.now += later_s
        await cards.get(None)
        wanted.append(len(actors.router.wanted))
    assert wanted == [1, 1, 2, 2]
    assert actors.model.cards_sent == 1


async def test_another_default_model_is_noticed() -> None:
    actors, clock = Actors(), Clock()
    actors.router.wants = [UP, status(ModelState.READY, "other")]
    cards = cards_of(actors, clock)
    first = await cards.get(None)
    actors.model.card = replace(card(), name="other")
    clock.now += NAME_TTL_S
    assert (first.name, (await cards.get(None)).name) == (MODEL, "other")


CHANGED = replace(card(), version="2", context_length=4096)


@pytest.mark.parametrize("name", [None, MODEL])
async def test_a_card_is_asked_about_after_a_while_and_fetched_when_its_model_has_another(
    name: str | None,
) -> None:
    actors, clock = Actors(), Clock()
    cards = cards_of(actors, clock)
    found = [await cards.get(name)]
    actors.model.card = CHANGED
    for version, later_s in (
        (card().version, NAME_TTL_S),
        ("2", NAME_TTL_S / 2),
        ("2", NAME_TTL_S),
    ):
        actors.router.wants = [replace(UP, version=version)]
        clock.now += later_s
        found.append(await cards.get(name))
    assert found == [card(), card(), card(), CHANGED]
    assert (len(actors.router.wanted), actors.model.cards_sent) == (3, 2)


async def test_a_card_does_not_outlast_its_model() -> None:
    actors, clock = Actors(), Clock()
    loading = status(ModelState.LOADING, message="no replica answers")
    cards = cards_of(actors, clock)
    await cards.get(MODEL)
    actors.model.card, actors.router.wants = CHANGED, [loading, loading, UP]
    clock.now += NAME_TTL_S
    assert (await cards.get(MODEL)) == CHANGED
    assert len(actors.router.wanted) == 4


async def test_what_is_told_of_all_models_is_told_of_their_cards() -> None:
    actors = Actors()
    fleet = actors.fleet()
    before = await fleet.card(MODEL)
    actors.model.card, actors.router.statuses = CHANGED, [replace(UP, version="2")]
    await fleet.statuses()
    assert [before, await fleet.card(MODEL)] == [card(), CHANGED]


async def test_without_a_router_a_name_means_what_it_meant() -> None:
    actors, clock = Actors(), Clock()
    cards = cards_of(actors, clock)
    assert await cards.get("alias") == card()
    actors.router.wants = [RayError("dead")]
    wanted = []
    for _ in range(4):
        clock.now += NAME_TTL_S
        assert await cards.get("alias") == card()
        wanted.append(len(actors.router.wanted))
    assert wanted == [2, 3, 4, 5]


async def test_a_forgotten_card_is_fetched_again() -> None:
    actors = Actors()
    cards = cards_of(actors, Clock())
    await cards.get("alias")
    cards.forget(MODEL)
    await cards.get("alias")
    assert (len(actors.router.wanted), actors.model.cards_sent) == (2, 2)


@pytest.mark.parametrize("length", [40, OFF_LOOP_TOKENS + 5])
async def test_prompts_hash_as_pages_do_and_their_choices_share_it(length: int) -> None:
    first = GenerationRequest(request_id="0", prompt_ids=tuple(range(length)))
    hashes = PromptHashes()
    choices = [replace(first, request_id=str(choice)) for choice in range(3)]
    found = await asyncio.gather(*(hashes.page_hashes(choice, 16) for choice in choices))
    assert found[0] == tuple(page_hashes(first.prompt_ids, 16))
    assert all(result is found[0] for result in found)
    salted = replace(first, content=Content("s"))
    assert await hashes.page_hashes(salted, 16) == tuple(
        page_hashes(first.prompt_ids, 16, Content("s"))
    )
    assert await hashes.page_hashes(first, 8) == tuple(page_hashes(first.prompt_ids, 8))


async def attempted(actors: Actors, patience_s: float) -> None:
    """One attempt at a call that no replica answers, looked at very often."""
    handles = actors.handles()
    attempts = Attempts(handles, RouterClient(handles), watch_s=WATCH_S)
    request = GenerationRequest(
        request_id="r", prompt_ids=(1,), max_tokens=3, prompt_logprobs=0
    )  # on a stream of its own
    async for _ in attempts.events(card(), None, request, Retries(patience_s), lambda: False):
        raise AssertionError


async def unanswered(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    await asyncio.Event().wait()
    yield TokenEvent()


def test_a_call_that_waits_for_a_replica_is_given_up_in_the_end() -> None:
    actors = Actors(unanswered)
    actors.router.statuses = [status(ModelState.READY, replicas=0)]
    with pytest.raises(Refused, match="no replica"):
        asyncio.run(attempted(actors, patience_s=0.0))
    assert actors.model.cancelled == 1


@pytest.mark.parametrize("state", [ModelState.UNLOADED, ModelState.UNLOADING, ModelState.FAILED])
def test_a_call_to_a_model_that_went_away_is_left(state: ModelState) -> None:
    actors = Actors(unanswered)
    actors.router.statuses = [status(state)]
    with pytest.raises(ModelGoneError):
        asyncio.run(attempted(actors, patience_s=60.0))


async def shows_life(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    while True:
        yield HEARTBEAT
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("fate", "known"),
    [(shows_life, UP), (unanswered, status(ModelState.SLEEPING))],
    ids=["a replica that is busy", "one that is to come"],
)
async def test_a_call_is_waited_for_as_long_as_it_has_a_replica_or_there_is_none(
    fate: Fate, known: ModelStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "REPLICA_TIMEOUT_S", 0.2)
    actors = Actors(fate)
    actors.router.statuses = [known]

    async def looked_at() -> None:
        for _ in range(3 * int(liveness.REPLICA_TIMEOUT_S / WATCH_S)):
            await actors.router.looks.acquire()

    waiting = asyncio.create_task(attempted(actors, patience_s=0.0))
    looks = asyncio.create_task(looked_at())
    await asyncio.wait({waiting, looks}, return_when=asyncio.FIRST_COMPLETED)
    assert (looks.done(), waiting.done()) == (True, False)


def test_a_call_that_no_replica_takes_though_there_are_some_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(liveness, "REPLICA_TIMEOUT_S", 0.2)
    with pytest.raises(ReplicaLostError, match="not a word"):
        asyncio.run(attempted(Actors(unanswered), patience_s=60.0))
