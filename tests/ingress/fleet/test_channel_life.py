"""Both ends of a channel show that they are there: who falls silent is lost to the other one."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace

import pytest
from ray.exceptions import ActorDiedError

from deployments.contract.channel import HEARTBEAT, Join, decode_burst, encode_update
from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision
from deployments.ingress.fleet import liveness
from deployments.ingress.fleet.channel_client import MAX_UNPINNED
from deployments.ingress.fleet.liveness import ReplicaSilentError
from deployments.model.channel_server import CLIENT_TIMEOUT_S
from tests.ingress.fleet.actors import MODEL, Actors, produces, token_at
from tests.ingress.fleet.replicas import Replica
from tests.ingress.fleet.test_channel_client import LENGTH, said, staged, token, whole
from tests.ingress.fleet.test_fleet import ALONE, ASKED, WHOLE, answered, counted, ids

SHORT_S = 0.5  # what is not silent must not seem so on a busy machine
PAUSED = GenerationRequest(request_id="paused", prompt_ids=(1,))
NOTHING = encode_update((), ())
JOINS = encode_update([Join(0, "", "v", PAUSED)], ())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "REPLICA_TIMEOUT_S", SHORT_S)


@pytest.fixture
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.model.channel_server.HEARTBEAT_S", 0.001)


@pytest.mark.usefixtures("impatient")
async def test_a_replica_that_falls_silent_is_lost_to_each_of_its_sequences() -> None:
    async with staged() as stage:
        for sequence in await stage.begun("paused-1", "paused-2"):
            with pytest.raises(ReplicaSilentError):
                await said(sequence)
            assert sequence.is_taken


@pytest.mark.usefixtures("impatient")
async def test_a_channel_that_does_not_open_is_lost_to_all_who_wait_for_it() -> None:
    """None of them is its cause: there may be no replica."""
    async with staged() as stage:

        async def never(name: str, update: bytes) -> AsyncGenerator[bytes, None]:
            opened.append(name)
            opening.set()
            await asyncio.Event().wait()
            yield b""

        opening, opened = asyncio.Event(), list[str]()
        [replica] = stage.all
        opens, replica.open_channel = replica.open_channel, never  # type: ignore[method-assign]
        asked = [stage.ask("first")]
        await opening.wait()
        asked.append(stage.ask("second"))
        for sequence in asked:
            with pytest.raises(ReplicaSilentError):
                await anext(sequence)
            assert not sequence.is_taken
        assert len(opened) == 1
        replica.open_channel = opens  # type: ignore[method-assign]
        later = stage.ask("later")
        assert await said(later) == whole(later)


@pytest.mark.usefixtures("impatient")
async def test_a_channel_that_waits_for_a_replica_to_come_is_not_lost() -> None:
    async with staged() as stage:

        async def late(name: str, update: bytes) -> AsyncGenerator[bytes, None]:
            await come.wait()
            async for burst in opens(name, update):
                yield burst

        come = asyncio.Event()
        [replica] = stage.all
        opens, replica.open_channel = replica.open_channel, late  # type: ignore[method-assign]
        asked = stage.ask("unpinned", None)
        assert not await asked.is_readable(2 * SHORT_S)
        assert not asked.is_confirmed
        come.set()
        assert await said(asked) == whole(asked)
        assert asked.is_confirmed


async def test_who_has_no_pin_joins_those_that_come_at_once_and_serve_balances_the_rest() -> None:
    async with staged() as stage:
        *early, last = [stage.ask(f"r{number}", None) for number in range(2 * MAX_UNPINNED + 1)]
        await anext(last)  # its channel is open, and none joins it any more
        others = [*early, stage.ask("late", None)]
        said_last, *rest = await asyncio.gather(*map(said, [last, *others]))
        assert [whole(last)[1:], *map(whole, others)] == [said_last, *rest]
        [replica] = stage.all
        assert (len(replica.opened), replica.told) == (4, 0)


@pytest.mark.usefixtures("lively")
async def test_a_replica_shows_that_it_is_there_while_its_engine_says_nothing() -> None:
    async with staged() as stage:
        bursts = Replica("a", stage.speaker.run, idle_s=0.0).ends.open("c", JOINS)
        assert await anext(bursts) == b"a"
        [(_, event)] = decode_burst(await anext(bursts))
        assert event.token_ids == (token(PAUSED, 0),)
        assert [decode_burst(await anext(bursts)) for _ in range(3)] == [[]] * 3
        stage.speaker.released.set()
        events = [event async for burst in bursts for _, event in decode_burst(burst)]
        assert [event.token_ids for event in events] == [
            (token(PAUSED, index),) for index in range(1, LENGTH)
        ]


@pytest.mark.usefixtures("lively")
async def test_a_channel_without_sequences_says_nothing() -> None:
    async with staged() as stage:
        ends = Replica("a", stage.speaker.run, idle_s=SHORT_S).ends
        assert [word async for word in ends.open("c", NOTHING)] == [b"a"]


@pytest.mark.usefixtures("lively")
async def test_a_sequence_with_a_stream_of_its_own_shows_the_same() -> None:
    async with staged() as stage:
        events = stage.all[0].ends.open_single("v", PAUSED)
        assert (await anext(events)).token_ids == (token(PAUSED, 0),)
        assert [await anext(events) for _ in range(3)] == [HEARTBEAT] * 3
        await events.aclose()
        await stage.speaker.until_gone("paused")


def test_replicas_hear_of_sequences_with_streams_of_their_own_while_these_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deployments.ingress.fleet.heartbeats.HEARTBEAT_S", 0.001)
    actors = Actors()

    async def fate(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        yield HEARTBEAT
        while await actors.model.heard_of.get() != (request.request_id,):
            pass
        async for event in produces()(request):
            yield event

    async def ask() -> None:
        fleet = actors.fleet()
        for name in ("first", "second"):
            request = replace(ALONE, request_id=name)
            events = fleet.generate(await fleet.card(MODEL), request)
            assert ids([event async for event in events]) == WHOLE

    actors.model.fates = [fate]
    asyncio.run(asyncio.wait_for(ask(), 30))


def test_what_shows_that_a_replica_is_there_is_no_part_of_an_answer() -> None:
    async def fate(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        async for event in produces()(request):
            yield HEARTBEAT
            yield event

    events = answered(Actors(fate))
    assert ids(events) == WHOLE
    assert HEARTBEAT not in events


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("pin", ["a", None])
@pytest.mark.parametrize("asked", [ASKED, ALONE], ids=["on a channel", "on a stream of its own"])
def test_a_sequence_goes_on_where_its_replica_fell_silent(
    asked: GenerationRequest, pin: str | None
) -> None:
    async def falls_silent(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        yield TokenEvent(token_ids=(token_at(0),))
        await asyncio.Event().wait()

    actors = Actors(falls_silent, produces())
    actors.router.choices = [RoutingDecision(pin, True)]
    assert ids(answered(actors, asked)) == WHOLE
    assert [pin for pin, _ in actors.model.requests] == [pin, None]
    assert counted(actors, "mid_stream") == 1


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("is_alone", [False, True], ids=["on a channel", "on its own stream"])
async def test_what_an_ingress_asked_for_ends_when_it_is_not_heard_of(
    is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("deployments.model.channel_server.time", clock)
    async with staged() as stage:
        ends = Replica("a", stage.speaker.run, idle_s=0.0).ends
        words: AsyncGenerator[object, None] = (
            ends.open_single("v", PAUSED) if is_alone else ends.open("c", JOINS)
        )
        while stage.speaker.running != {"paused"}:
            await anext(words)
        clock.now = CLIENT_TIMEOUT_S - 1
        if is_alone:
            ends.heartbeat(["paused", "elsewhere"])
        else:
            assert ends.update("c", NOTHING)
        clock.now += CLIENT_TIMEOUT_S - 1
        ends.expire()
        for _ in range(3):
            await asyncio.sleep(0)
        assert stage.speaker.running == {"paused"}
        clock.now += 1
        ends.expire()
        await stage.speaker.until_gone("paused")
        assert not ends.update("c", NOTHING)


@pytest.mark.parametrize("is_running", [True, False], ids=["its replica", "one that stops"])
async def test_an_ingress_is_heard_of_while_it_has_sequences_and_disturbs_none(
    is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stops gets no calls: another one hears of it."""
    monkeypatch.setattr("deployments.ingress.fleet.channel_client.HEARTBEAT_S", 0.001)
    async with staged("a", "b") as stage:
        first, second = stage.all
        [paused] = await stage.begun("paused")
        first.is_running = is_running
        hears = first if is_running else second
        for _ in range(3):
            hears.called.clear()
            await hears.called.wait()
        stage.speaker.released.set()
        assert (await said(paused))[-1] == whole(paused)[-1]
        asked = stage.ask("r")
        assert await said(asked) == whole(asked)
        assert stage.replicas.aborted == []


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_heartbeat_that_is_lost_is_followed_by_others(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.ingress.fleet.channel_client.HEARTBEAT_S", 0.001)
    async with staged() as stage:
        calls = asyncio.Semaphore(0)

        async def fails(name: str, update: bytes) -> bool:
            calls.release()
            if hangs:
                await asyncio.Event().wait()
            raise ActorDiedError

        stage.all[0].update_channel = fails  # type: ignore[method-assign]
        [paused] = await stage.begun("paused")
        for _ in range(5):
            await calls.acquire()
        stage.speaker.released.set()
        assert (await said(paused))[-1] == whole(paused)[-1]


async def test_a_channel_that_is_closed_at_its_first_word_ends_all_that_it_runs() -> None:
    async with staged() as stage:
        bursts = stage.all[0].ends.open("c", JOINS)
        assert await anext(bursts) == b"a"
        for _ in range(3):
            await asyncio.sleep(0)
        assert stage.speaker.running == {"paused"}
        await bursts.aclose()
        await stage.speaker.until_gone("paused")
