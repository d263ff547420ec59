"""Files that are larger than a message reach their replica in pieces, and delay nobody."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from PIL import Image
from ray.exceptions import ActorDiedError

from deployments.contract.events import TokenEvent
from deployments.contract.media_rules import MediaKind
from deployments.contract.requests import GenerationRequest, MediumFile
from deployments.contract.routing import RoutingDecision
from deployments.ingress.fleet.channel_stream import ChannelStream
from deployments.media.images import as_png
from tests.ingress.fleet.actors import MODEL, Actors
from tests.ingress.fleet.replicas import Replica
from tests.ingress.fleet.test_channel_client import Stage, said, whole
from tests.ingress.fleet.test_fleet import ASKED, WHOLE, ids

MIB = 1 << 20
MAX_MESSAGE = 4 * MIB  # of Serve's gRPC transport


@cache
def picture() -> bytes:
    """Returns a PNG of noise, which no format makes smaller."""
    pixels = np.random.default_rng(0).integers(0, 256, (1460, 1460, 3))
    return as_png(Image.fromarray(pixels.astype(np.uint8)))


FILES = tuple(MediumFile(kind=MediaKind.IMAGE, data=data) for data in (b"small", b""))


def files() -> tuple[MediumFile, ...]:
    return MediumFile(kind=MediaKind.IMAGE, data=picture()), *FILES


class Gallery(Stage):
    """`arrived` are the files that came with each request. `sizes` are those of messages."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.arrived: dict[str, tuple[MediumFile, ...]] = {}
        self.sizes: list[int] = []
        for replica in self.all:
            replica.run = self._run
            replica.ends.update = self._watched(replica)  # type: ignore[method-assign, assignment]

    def _watched(self, replica: Replica) -> Callable[[str, bytes], bool]:
        update = replica.ends.update

        def watched(name: str, words: bytes) -> bool:
            self.sizes.append(len(words))
            return update(name, words)

        return watched

    async def _run(
        self, version: str, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        self.arrived[request.request_id] = request.media
        async for event in self.speaker.run(version, request):
            yield event

    def show(self, name: str, pin: str = "a") -> ChannelStream:
        request = GenerationRequest(request_id=name, prompt_ids=(7,), media=files())
        return self.channels.start(MODEL, pin, "v", request)

    def unused_files(self, replica: Replica) -> int:
        return sum(len(channel._files) for channel in replica.ends._open.values())


@asynccontextmanager
async def shown(*names: str) -> AsyncIterator[Gallery]:
    async with asyncio.timeout(30):
        yield Gallery(*(names or ("a",)))


async def test_a_large_picture_arrives_whole_and_others_pass_by() -> None:
    async with shown() as stage:
        assert len(picture()) > 6 * MIB
        [paused] = await stage.begun("paused")
        first, second = stage.show("first"), stage.show("second")
        small = stage.ask("small")
        assert await said(small) == whole(small)
        assert stage.arrived.keys() == {"paused", "small"}
        both = first, second
        assert await asyncio.gather(*map(said, both)) == list(map(whole, both))
        assert stage.arrived["first"] == stage.arrived["second"] == files()
        assert max(stage.sizes) < MAX_MESSAGE / 2
        assert stage.unused_files(stage.all[0]) == 0
        paused.leave()


async def test_who_leaves_while_a_file_is_sent_leaves_nothing_of_it() -> None:
    async with shown() as stage:
        [replica] = stage.all
        [paused] = await stage.begun("paused")
        replica.gate = asyncio.Event()
        leaves = stage.show("leaves")
        await replica.called.wait()
        leaves.leave()
        replica.gate.set()
        later = stage.show("later")
        assert await said(later) == whole(later)
        assert stage.arrived.keys() == {"paused", "later"}
        assert stage.unused_files(replica) == 0
        paused.leave()


async def test_a_lost_piece_loses_its_request_alone_and_frees_the_others() -> None:
    async with shown() as stage:
        [replica] = stage.all
        [paused] = await stage.begun("paused")
        replica.gate = asyncio.Event()
        lost = stage.show("lost")
        await replica.called.wait()
        works = replica.update_channel

        async def fails_once(name: str, update: bytes) -> bool:
            replica.update_channel = works  # type: ignore[method-assign]
            raise ActorDiedError

        replica.update_channel = fails_once  # type: ignore[method-assign]
        replica.gate.set()
        with pytest.raises(ActorDiedError):
            await anext(lost)
        lost.leave()
        later = stage.show("later")
        assert await said(later) == whole(later)
        assert stage.unused_files(replica) == 0
        stage.speaker.released.set()
        assert (await said(paused))[-1] == whole(paused)[-1]


async def test_a_replica_that_stops_while_a_file_is_sent_leaves_it_to_another_one() -> None:
    async with shown("a", "b") as stage:
        stopping, other = stage.all
        [paused] = await stage.begun("paused")
        stopping.gate = asyncio.Event()
        asked = stage.show("r")
        await stopping.called.wait()
        stopping.is_running = False
        stopping.gate.set()
        assert await said(asked) == whole(asked)
        assert stage.arrived["r"] == files()
        assert len(other.opened) == 1
        stage.speaker.released.set()
        assert (await said(paused))[-1] == whole(paused)[-1]


async def test_a_replica_that_can_not_be_reached_loses_who_has_a_large_file() -> None:
    async with shown() as stage:
        [replica] = stage.all
        replica.die()
        replica.is_running = True  # as far as anyone knows
        first, second = stage.show("first"), stage.show("second")
        for sequence in (first, second):
            with pytest.raises(ActorDiedError):
                await anext(sequence)


@pytest.mark.parametrize("pin", [None, "a"])
async def test_what_is_not_shared_has_a_channel_of_its_own_for_large_files(pin: str | None) -> None:
    actors = Actors()
    actors.router.choices = [RoutingDecision(pin, True)]
    request = replace(ASKED, media=files(), prompt_logprobs=None if pin is None else 1)
    fleet = actors.fleet()
    assert ids([event async for event in fleet.generate(await fleet.card(MODEL), request)]) == WHOLE
    [(_, arrived)] = actors.model.requests
    assert (actors.model.opened, arrived.media) == (1, files())
