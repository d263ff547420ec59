"""An ingress's end of its channels: the sequences that one replica runs for it share a stream.

What comes while a call is on its way goes with the next one, and nothing waits for company. A
sequence whose channel ends before it does is lost, and may be asked for elsewhere.
"""

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial

from deployments.channel_protocol import (
    CHANNEL_IDLE_S,
    HEARTBEAT_S,
    Join,
    count_fitting,
    decode_burst,
    encode_update,
    request_weight,
)
from deployments.detached_tasks import create_detached_task
from deployments.ingress.fleet.liveness import ReplicaSilentError, within_timeout
from deployments.ingress.fleet.serve_handles import (
    CallCancelledError,
    ServeHandles,
    call_result,
    cancelled_elsewhere,
)
from deployments.telemetry import logs
from deployments.wire import GenerationRequest, TokenEvent, merge

log = logging.getLogger("ray.serve")

UPDATE_TIMEOUT_S = 10.0
Replica = tuple[str, str]  # a model's name and a pin


class ChannelStream:
    """One request on a channel, and its events as they come. `leave` ends it."""

    is_heard = True  # else its channel ends

    def __init__(self, join: Join, handles: ServeHandles, model: str) -> None:
        self.join = join
        self.channel: ChannelClient | None = None
        self._handles = handles
        self._model = model
        self._events: list[TokenEvent] = []
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()

    def put(self, event: TokenEvent) -> None:
        self._events.append(event)
        self._changed.set()

    def fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._changed.set()

    def leave(self) -> None:
        if self.channel is None or not self.channel.leave(self):
            self.abort()

    def abort(self) -> None:
        """Ends it wherever it may run."""
        self._handles.abort(self._model, self.join.request.request_id)

    async def comes(self, within_s: float) -> bool:
        """Whether there is something to be read, or an end."""
        if not self._changed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._changed.wait()
        return self._changed.is_set()

    def __aiter__(self) -> "ChannelStream":
        return self

    async def __anext__(self) -> TokenEvent:
        """Whatever piled up since the last one. Raises what ended the channel."""
        await self._changed.wait()
        if not self._events:
            assert self._failure is not None
            raise self._failure
        events, self._events = self._events, []
        if self._failure is None:
            self._changed.clear()
        return merge(events)


class ChannelClients:
    """Belongs to one event loop."""

    def __init__(self, handles: ServeHandles) -> None:
        self._handles = handles
        self._numbers = itertools.count()
        self._latest: dict[Replica, ChannelClient] = {}

    def ask(self, model: str, pin: str, version: str, request: GenerationRequest) -> ChannelStream:
        join = Join(next(self._numbers), logs.request_id(), version, request)
        sequence = ChannelStream(join, self._handles, model)
        self._place((model, pin), sequence)
        return sequence

    def _place(self, replica: Replica, sequence: ChannelStream) -> None:
        channel = self._latest.get(replica)
        if channel is None or not channel.takes_more:
            again = partial(self._place, replica)
            channel = self._latest[replica] = ChannelClient(self._handles, replica, again)
            channel.work.add_done_callback(lambda _: self._forget(replica, channel))
        channel.join(sequence)

    def _forget(self, replica: Replica, channel: "ChannelClient | None") -> None:
        if self._latest.get(replica) is channel:
            del self._latest[replica]


class ChannelClient:
    """`again` takes sequences that the replica does not know, to be asked for on another channel.

    One that can't be told any more takes no more: it goes on while all of its sequences do.
    """

    def __init__(
        self, handles: ServeHandles, replica: Replica, again: Callable[[ChannelStream], None]
    ) -> None:
        self._handles = handles
        self._model, self._pin = replica
        self._again = again
        self._name = uuid.uuid4().hex
        self._is_open = False  # at the other end
        self._can_be_told = True
        self._idle_since = 0.0
        self._sequences: dict[int, ChannelStream] = {}  # that the replica may know
        self._joining: list[ChannelStream] = []
        self._leaving: list[ChannelStream] = []
        self._telling: asyncio.Task[None] | None = None
        self.work = create_detached_task(self._run())

    @property
    def takes_more(self) -> bool:
        """One that has been idle may be ending at its other end."""
        if not self._can_be_told or self.work.done():
            return False
        is_idle = self._is_open and not (self._sequences or self._joining)
        return not is_idle or time.monotonic() < self._idle_since + CHANNEL_IDLE_S / 2

    def join(self, sequence: ChannelStream) -> None:
        sequence.channel = self
        self._joining.append(sequence)
        self._tell_soon()

    def leave(self, sequence: ChannelStream) -> bool:
        """Whether the replica does not know it, or will be told."""
        if sequence in self._joining:
            self._joining.remove(sequence)
        elif not self._drop(sequence):
            return False
        elif self._can_be_told:
            self._leaving.append(sequence)
            self._tell_soon()
        else:
            self._give_up()
            return False
        if self._is_empty and not self._is_open:
            self._give_up()
        return True

    def _give_up(self) -> None:
        """Ends what has left, too; all others go on elsewhere."""
        self._can_be_told = False
        self.work.cancel()

    @property
    def _is_empty(self) -> bool:
        return not (self._sequences or self._joining)

    def _drop(self, sequence: ChannelStream) -> bool:
        """Whether it was there."""
        self._idle_since = time.monotonic()
        return self._sequences.pop(sequence.join.number, None) is not None

    async def _run(self) -> None:
        """Whatever ends it is for its sequences."""
        failure: BaseException = CallCancelledError("the channel has ended")
        try:
            with cancelled_elsewhere():
                await self._carry()
        except Exception as error:
            failure = error
        finally:
            self._end(failure)

    async def _carry(self) -> None:
        words = encode_update([one.join for one in self._take()], ())
        model = await self._handles.model(self._model)
        opening = model.options(stream=True, method_name="channel")
        stream = opening.remote(self._pin, self._name, words)
        beating = create_detached_task(self._beat())
        try:
            await self._hear(aiter(stream))
        finally:
            beating.cancel()
            stream.cancel()

    async def _hear(self, stream: AsyncIterator[bytes]) -> None:
        # Where it is: the pin was only a hint.
        self._pin = (await within_timeout(anext(stream, b""))).decode()
        self._is_open = True
        self._tell_soon()
        while burst := await within_timeout(anext(stream, b"")):
            self._pass_on(burst)
            if not self._can_be_told and self._is_empty:
                break
        self._can_be_told = False
        if self._telling is not None:  # who joins while it ends will be refused, and is not lost
            await asyncio.wait({self._telling})

    def _pass_on(self, burst: bytes) -> None:
        for number, event in decode_burst(burst):
            if sequence := self._sequences.get(number):  # else it has left
                sequence.put(event)
                if event.finish_reason is not None:
                    self._drop(sequence)

    def _end(self, failure: BaseException) -> None:
        self._can_be_told = False
        if self._telling is not None:
            self._telling.cancel()
        for sequence in self._leaving:
            sequence.abort()
        lost = [*self._sequences.values()]
        if isinstance(
            failure, ReplicaSilentError
        ):  # asked again, they would come to the same replica
            lost += self._joining
        else:
            self._ask_again(self._joining)
        for sequence in lost:
            sequence.fail(failure)

    def _ask_again(self, sequences: Iterable[ChannelStream]) -> None:
        for sequence in sequences:
            self._again(sequence)

    def _take(self) -> list[ChannelStream]:
        """Those that go with the next message."""
        n = count_fitting(request_weight(one.join.request) for one in self._joining)
        taken, self._joining = self._joining[:n], self._joining[n:]
        self._sequences.update((one.join.number, one) for one in taken)
        return taken

    def _tell_soon(self) -> None:
        if self._is_open and self._telling is None:
            self._telling = create_detached_task(self._tell_all())

    async def _tell_all(self) -> None:
        try:
            while self._can_be_told and (self._joining or self._leaving):
                await self._tell(self._take(), [*self._leaving])
        finally:
            self._telling = None

    async def _tell(self, joining: list[ChannelStream], leaving: list[ChannelStream]) -> None:
        joins = [one.join for one in joining]
        words = encode_update(joins, [one.join.number for one in leaving])
        try:
            told = await self._call(words, UPDATE_TIMEOUT_S)
        except Exception as failure:
            log.warning("a channel to %s can't be told: %r", self._model, failure)
            self._not_told(joining, leaving, failure)
            return
        if told:
            del self._leaving[: len(leaving)]
        else:
            self._refused(joining)

    async def _call(self, words: bytes, timeout_s: float) -> bool:
        """Whether it came to where the channel is. Raises what kept it from coming anywhere."""
        async with asyncio.timeout(timeout_s):
            model = await self._handles.model(self._model)
            told: bool = await call_result(model.tell.remote(self._pin, self._name, words))
        return told

    async def _beat(self) -> None:
        """Else the replica takes this ingress for dead. None waits for the last one's end."""
        while True:
            await asyncio.gather(self._show_life(), asyncio.sleep(HEARTBEAT_S))

    async def _show_life(self) -> None:
        """A replica that stops can't be told and forgets nobody, but one that is shunned can be
        told again.
        """
        if not (self._is_open and self._sequences):
            return
        try:
            await self._call(encode_update((), ()), HEARTBEAT_S)
        except Exception as failure:
            log.warning("a channel to %s hears no heartbeat: %r", self._model, failure)

    def _not_told(
        self, joining: list[ChannelStream], leaving: list[ChannelStream], failure: Exception
    ) -> None:
        """The replica may know them, or not: they end wherever they run, and are lost."""
        del self._leaving[: len(leaving)]
        for sequence in leaving:
            sequence.abort()
        for sequence in joining:
            if self._drop(sequence):
                sequence.fail(failure)

    def _refused(self, joining: list[ChannelStream]) -> None:
        """The call came to where the channel is not: its replica is stopping, or has let it go."""
        self._can_be_told = False
        unknown = [one for one in joining if self._drop(one)]
        waiting, self._joining = self._joining, []
        self._ask_again([*unknown, *waiting])
        if self._leaving or self._is_empty:
            self._give_up()
