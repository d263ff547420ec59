"""Many sequences on one stream: who joins, leaves, is refused or lost disturbs nobody else."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from ray.exceptions import ActorDiedError

from deployments.contract.channel import MAX_MESSAGE_WEIGHT, Join, decode_burst, encode_update
from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.ingress.fleet.channel_client import ChannelClients
from deployments.ingress.fleet.channel_stream import ChannelStream
from deployments.ingress.fleet.serve_handles import CallCancelledError
from tests.ingress.fleet.replicas import MODEL, Replica, Replicas

LENGTH = 5


class Speaker:
    """Says a request's own tokens, one an event; those named `paused` say one and wait."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: set[str] = set()
        self.released = asyncio.Event()
        self.ended = asyncio.Condition()

    async def run(
        self, version: str, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        self.started.append(request.request_id)
        self.running.add(request.request_id)
        try:
            for index in range(LENGTH):
                if index and request.request_id.startswith("paused"):
                    await self.released.wait()
                last = index + 1 == LENGTH
                reason = FinishReason.LENGTH if last else None
                yield TokenEvent(token_ids=(token(request, index),), finish_reason=reason)
        finally:
            self.running.remove(request.request_id)
            async with self.ended:
                self.ended.notify_all()

    async def until_gone(self, name: str) -> None:
        async with self.ended:
            await self.ended.wait_for(lambda: name not in self.running)


class Stage:
    def __init__(self, *names: str) -> None:
        self.speaker = Speaker()
        self.all = [Replica(name, self.speaker.run) for name in names]
        self.replicas = Replicas(self.all)
        self.channels = self.replicas.channels()

    def ask(
        self, name: str, pin: str | None = "a", prompt: tuple[int, ...] = (7,)
    ) -> ChannelStream:
        request = GenerationRequest(request_id=name, prompt_ids=prompt)
        return self.channels.start(MODEL, pin, "v", request)

    async def begun(self, *names: str) -> list[ChannelStream]:
        """Sequences that have said something, on one channel."""
        asked = [self.ask(name) for name in names]
        for sequence in asked:
            await anext(sequence)
        return asked


def token(request: GenerationRequest, index: int) -> int:
    return hash(request.request_id) % 1000 + index


def whole(sequence: ChannelStream) -> list[int]:
    return [token(sequence.join.request, index) for index in range(LENGTH)]


async def said(sequence: ChannelStream) -> list[int]:
    ids: list[int] = []
    while True:
        event = await anext(sequence)
        assert event.error is None
        ids += event.token_ids
        if event.finish_reason is not None:
            return ids


@asynccontextmanager
async def staged(*names: str) -> AsyncIterator[Stage]:
    async with asyncio.timeout(30):
        yield Stage(*(names or ("a",)))


async def test_many_that_come_together_open_one_channel_with_one_call() -> None:
    async with staged() as stage:
        asked = [stage.ask(f"r{number}") for number in range(20)]
        assert await asyncio.gather(*map(said, asked)) == list(map(whole, asked))
        [replica] = stage.all
        assert (len(replica.opened), replica.told) == (1, 0)


async def test_those_that_come_during_a_call_go_together_in_the_next_one() -> None:
    async with staged() as stage:
        [replica] = stage.all
        await stage.begun("paused")
        replica.gate = asyncio.Event()
        asked = [stage.ask("r0")]
        await replica.called.wait()
        asked += [stage.ask(f"r{number}") for number in range(1, 20)]
        replica.gate.set()
        assert await asyncio.gather(*map(said, asked)) == list(map(whole, asked))
        assert (len(replica.opened), replica.told) == (1, 2)


async def test_long_prompts_do_not_make_a_message_that_is_too_long() -> None:
    async with staged() as stage:
        asked = [stage.ask(f"r{n}", prompt=tuple(range(MAX_MESSAGE_WEIGHT // 2))) for n in range(7)]
        assert await asyncio.gather(*map(said, asked)) == list(map(whole, asked))
        [replica] = stage.all
        assert (len(replica.opened), replica.told) == (1, 3)


@pytest.mark.parametrize("is_complete", [False, True])
async def test_one_that_leaves_ends_alone_and_is_told_to_nobody_else(is_complete: bool) -> None:
    async with staged() as stage:
        leaving, *rest = await stage.begun("paused-1", "paused-2", "paused-3")
        leaving.leave(is_complete=is_complete)
        await stage.speaker.until_gone("paused-1")
        assert stage.speaker.running == {"paused-2", "paused-3"}
        stage.speaker.released.set()
        assert [ids[-1] for ids in await asyncio.gather(*map(said, rest))] == [
            whole(sequence)[-1] for sequence in rest
        ]
        assert stage.replicas.aborted == []
        assert stage.all[0].completed == (["paused-1"] if is_complete else [])


async def test_one_that_leaves_before_it_was_sent_never_starts() -> None:
    async with staged() as stage:
        stays, leaves = stage.ask("stays"), stage.ask("leaves")
        leaves.leave()
        assert await said(stays) == whole(stays)
        assert stage.speaker.started == ["stays"]


async def test_the_last_one_that_leaves_a_channel_which_does_not_open_ends_it() -> None:
    async with staged() as stage:
        opens, hangs = asyncio.Event(), asyncio.Event()

        async def never(name: str, update: bytes) -> AsyncGenerator[bytes, None]:
            opens.set()
            try:
                await asyncio.Event().wait()
            finally:
                hangs.set()
            yield b""

        [replica] = stage.all
        replica.open_channel = never  # type: ignore[method-assign]
        first, second = stage.ask("first"), stage.ask("second")
        await opens.wait()
        first.leave()
        assert not hangs.is_set()
        second.leave()
        await hangs.wait()


@pytest.mark.parametrize("death", [ActorDiedError(), RuntimeError("cut")], ids=["died", "cut"])
async def test_a_replica_that_dies_is_lost_to_each_of_its_sequences(death: Exception) -> None:
    async with staged("a", "b") as stage:
        asked = await stage.begun("paused-1", "paused-2", "paused-3")
        stage.all[0].die(death)
        for sequence in asked:
            with pytest.raises(type(death)):
                await said(sequence)
        elsewhere = stage.ask("r")
        assert await said(elsewhere) == whole(elsewhere)
        assert len(stage.all[1].opened) == 1


async def test_what_a_lost_replica_had_is_aborted_wherever_it_may_run() -> None:
    async with staged() as stage:
        asked = await stage.begun("paused-1", "paused-2")
        stage.all[0].die()
        for sequence in asked:
            with pytest.raises(ActorDiedError):
                await said(sequence)
            sequence.leave()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stage.replicas.aborted == ["paused-1", "paused-2"]


async def test_who_comes_to_a_replica_that_stops_is_served_by_another_one_at_once() -> None:
    """A stopping replica gets no calls and goes on with those it has, as in Serve."""
    async with staged("a", "b") as stage:
        stopping, other = stage.all
        [paused] = await stage.begun("paused")
        stopping.is_running = False
        asked = [stage.ask("r0"), stage.ask("r1")]
        assert await asyncio.gather(*map(said, asked)) == list(map(whole, asked))
        assert (len(stopping.opened), len(other.opened)) == (1, 1)
        assert stage.speaker.started == ["paused", "r0", "r1"]
        stage.speaker.released.set()
        assert (await said(paused))[-1] == whole(paused)[-1]
        await stopping.closed.wait()  # without waiting for company
        assert stage.replicas.aborted == []


async def test_one_that_leaves_a_replica_which_can_not_be_told_ends_there_all_the_same() -> None:
    async with staged("a", "b") as stage:
        stopping, _ = stage.all
        leaving, staying = await stage.begun("paused-1", "paused-2")
        stopping.is_running = False
        leaving.leave()
        await stage.speaker.until_gone("paused-1")
        with pytest.raises(CallCancelledError):  # and goes on elsewhere
            await said(staying)


async def test_who_comes_when_the_last_one_has_just_left_is_not_forgotten() -> None:
    async with staged() as stage:
        stage.ask("leaves").leave()
        asked = stage.ask("r")
        assert await said(asked) == whole(asked)
        assert stage.speaker.started == ["r"]


async def test_a_call_that_fails_is_no_matter_of_those_who_run_already() -> None:
    async with staged() as stage:
        [replica] = stage.all
        [paused] = await stage.begun("paused")
        tell, replica.update_channel = replica.update_channel, fails  # type: ignore[method-assign]
        lost = stage.ask("lost")
        with pytest.raises(ActorDiedError):
            await anext(lost)
        lost.leave()
        replica.update_channel = tell  # type: ignore[method-assign]
        asked = stage.ask("r")
        assert await said(asked) == whole(asked)
        stage.speaker.released.set()
        assert (await said(paused))[-1] == whole(paused)[-1]
        assert stage.replicas.aborted == ["lost"]
        assert len(replica.opened) == 1


async def fails(name: str, update: bytes) -> bool:
    raise ActorDiedError


async def test_a_refusal_of_one_is_no_matter_of_the_others() -> None:
    full = RequestError(ErrorKind.OVERLOADED, "full")
    async with staged() as stage:
        speak = stage.speaker.run

        async def refuses(
            version: str, request: GenerationRequest
        ) -> AsyncGenerator[TokenEvent, None]:
            if request.request_id == "refused":
                yield TokenEvent(finish_reason=FinishReason.ERROR, error=full)
                return
            if request.request_id == "broken":
                raise ZeroDivisionError
            async for event in speak(version, request):
                yield event

        stage.all[0].run = refuses
        refused, broken, served = stage.ask("refused"), stage.ask("broken"), stage.ask("served")
        assert (await anext(refused)).error == full
        error = (await anext(broken)).error
        assert error is not None
        assert error.kind is ErrorKind.INTERNAL
        assert await said(served) == whole(served)


async def test_a_replica_that_was_restarted_under_its_name_opens_another_channel() -> None:
    async with staged() as stage:
        [paused] = await stage.begun("paused")
        again = Replica("a", stage.speaker.run)
        stage.all[:] = [again]
        stage.replicas.all = [again]
        asked = stage.ask("r")
        assert await said(asked) == whole(asked)
        assert len(again.opened) == 1
        stage.speaker.released.set()
        assert (await said(paused))[-1] == whole(paused)[-1]


async def test_a_channel_lasts_for_who_comes_next() -> None:
    async with staged() as stage:
        for name in ("r0", "r1"):
            asked = stage.ask(name)
            assert await said(asked) == whole(asked)
        assert len(stage.all[0].opened) == 1


async def test_a_channel_that_nobody_uses_ends_and_is_opened_again() -> None:
    async with staged() as stage:
        replica = Replica("a", stage.speaker.run, idle_s=0.0)
        stage.replicas.all = [replica]
        for name in ("r0", "r1"):
            asked = stage.ask(name)
            assert await said(asked) == whole(asked)
            await replica.closed.wait()
            replica.closed.clear()
        assert len(replica.opened) == 2


async def test_who_reads_slowly_finds_all_of_it_in_one_event() -> None:
    async with staged() as stage:
        slow, quick = stage.ask("slow"), stage.ask("quick")
        assert await said(quick) == whole(quick)
        event = await anext(slow)
        assert list(event.token_ids) == whole(slow)
        assert event.finish_reason is FinishReason.LENGTH


async def test_a_reader_that_takes_nothing_holds_nobody_up_and_is_not_asked_for_more() -> None:
    """The replica's end: what was said is taken before more is asked for."""
    async with staged() as stage:
        [replica] = stage.all
        joins = [
            Join(n, "", "v", GenerationRequest(request_id=f"r{n}", prompt_ids=(1,)))
            for n in range(3)
        ]
        bursts = replica.ends.open("c", encode_update(joins, ()))
        assert await anext(bursts) == b"a"
        for index in range(LENGTH):
            for _ in range(10):
                await asyncio.sleep(0)
            burst = decode_burst(await anext(bursts))
            assert [(number, event.token_ids) for number, event in burst] == [
                (n, (token(joins[n].request, index),)) for n in range(3)
            ]
        await bursts.aclose()


async def test_whoever_closes_a_channel_ends_all_that_it_runs() -> None:
    async with staged() as stage:
        asked: ChannelClients = stage.channels
        await stage.begun("paused-1", "paused-2")
        [channel] = asked._latest.values()
        channel.work.cancel()
        await stage.speaker.until_gone("paused-1")
        await stage.speaker.until_gone("paused-2")
