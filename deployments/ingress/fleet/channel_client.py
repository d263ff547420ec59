"""An ingress's end of its channels: all sequences that a replica runs for it share one stream.

A sequence is sent at once, or with the next call if one is under way. A sequence whose channel ends
before it does is lost, and may continue on another replica.
"""

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from enum import Enum, auto
from functools import partial

from deployments.channel_protocol import (
    CHANNEL_IDLE_S,
    HEARTBEAT_S,
    Join,
    Leave,
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

    is_confirmed = True  # by its replica, or else its channel ends

    def __init__(self, join: Join, handles: ServeHandles, model: str) -> None:
        self.join = join
        self.channel: ChannelClient | None = None
        self._handles = handles
        self._model = model
        self._events: list[TokenEvent] = []
        self._failure: BaseException | None = None
        self.is_complete = False  # when it is left
        self._changed = asyncio.Event()

    def put(self, event: TokenEvent) -> None:
        self._events.append(event)
        self._changed.set()

    def fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._changed.set()

    def leave(self, *, is_complete: bool = False) -> None:
        self.is_complete = is_complete
        if self.channel is None or not self.channel.leave(self):
            self.abort()

    def abort(self) -> None:
        """Ends it on whatever replica it runs."""
        self._handles.abort(self._model, self.join.request.request_id)

    async def is_readable(self, within_s: float) -> bool:
        """Whether an event or the end can be read within `within_s`."""
        if not self._changed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._changed.wait()
        return self._changed.is_set()

    def __aiter__(self) -> "ChannelStream":
        return self

    async def __anext__(self) -> TokenEvent:
        """All events since the last call, merged. Raises what ended the channel."""
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

    def start(
        self, model: str, pin: str, version: str, request: GenerationRequest
    ) -> ChannelStream:
        join = Join(next(self._numbers), logs.request_id(), version, request)
        stream = ChannelStream(join, self._handles, model)
        self._assign((model, pin), stream)
        return stream

    def _assign(self, replica: Replica, stream: ChannelStream) -> None:
        channel = self._latest.get(replica)
        if channel is None or not channel.accepts_joins:
            reassign = partial(self._assign, replica)
            channel = self._latest[replica] = ChannelClient(self._handles, replica, reassign)
            channel.work.add_done_callback(lambda _: self._forget(replica, channel))
        channel.join(stream)

    def _forget(self, replica: Replica, channel: "ChannelClient | None") -> None:
        if self._latest.get(replica) is channel:
            del self._latest[replica]


class _State(Enum):
    """Of a channel. It goes from one to a later one only.

    OPENING: the replica has not answered yet. Who joins waits for it.
    OPEN: updates can be sent.
    DRAINING: no update can be sent any more. The channel goes on while its sequences do.
    ENDED: nothing more is read.
    """

    OPENING = auto()
    OPEN = auto()
    DRAINING = auto()
    ENDED = auto()


class ChannelClient:
    """`reassign` takes sequences that the replica does not know, to ask for them elsewhere."""

    def __init__(
        self, handles: ServeHandles, replica: Replica, reassign: Callable[[ChannelStream], None]
    ) -> None:
        self._handles = handles
        self._model, self._pin = replica
        self._reassign = reassign
        self._name = uuid.uuid4().hex
        self._state = _State.OPENING
        self._idle_since = 0.0
        self._streams: dict[int, ChannelStream] = {}  # by number; the replica may know them
        self._joining: list[ChannelStream] = []
        self._leaving: list[ChannelStream] = []
        self._updating: asyncio.Task[None] | None = None
        self.work = create_detached_task(self._run())

    @property
    def accepts_joins(self) -> bool:
        """A channel that has been idle for long may be ending on the replica."""
        if self._state not in (_State.OPENING, _State.OPEN) or self.work.done():
            return False
        is_idle = self._state is _State.OPEN and self._is_empty
        return not is_idle or time.monotonic() < self._idle_since + CHANNEL_IDLE_S / 2

    def join(self, stream: ChannelStream) -> None:
        stream.channel = self
        self._joining.append(stream)
        self._schedule_update()

    def leave(self, stream: ChannelStream) -> bool:
        """False when the replica may know the sequence and can't be told that it has left."""
        if stream in self._joining:
            self._joining.remove(stream)
        elif not self._remove(stream):
            return False
        elif self._state in (_State.OPENING, _State.OPEN):
            self._leaving.append(stream)
            self._schedule_update()
        else:
            self._cancel()
            return False
        if self._is_empty and self._state is _State.OPENING:
            self._cancel()
        return True

    def _cancel(self) -> None:
        """Ends also the sequences that have left; all others continue on other channels."""
        self._state = _State.ENDED
        self.work.cancel()

    def _drain(self) -> None:
        if self._state is not _State.ENDED:
            self._state = _State.DRAINING

    @property
    def _is_empty(self) -> bool:
        return not (self._streams or self._joining)

    def _remove(self, stream: ChannelStream) -> bool:
        """Whether it was there."""
        self._idle_since = time.monotonic()
        return self._streams.pop(stream.join.number, None) is not None

    async def _run(self) -> None:
        """Its sequences get whatever ends it."""
        failure: BaseException = CallCancelledError("the channel has ended")
        try:
            with cancelled_elsewhere():
                await self._open_and_read()
        except Exception as error:
            failure = error
        finally:
            self._end(failure)

    async def _open_and_read(self) -> None:
        update = encode_update([one.join for one in self._next_joins()], ())
        model = await self._handles.model(self._model)
        opening = model.options(stream=True, method_name="open_channel")
        bursts = opening.remote(self._pin, self._name, update)
        heartbeats = create_detached_task(self._send_heartbeats())
        try:
            await self._read(aiter(bursts))
        finally:
            heartbeats.cancel()
            bursts.cancel()

    async def _read(self, bursts: AsyncIterator[bytes]) -> None:
        # The first item is the id of the replica: the pin was only a hint.
        self._pin = (await within_timeout(anext(bursts, b""))).decode()
        self._state = _State.OPEN
        self._schedule_update()
        while burst := await within_timeout(anext(bursts, b"")):
            self._dispatch(burst)
            if self._state is _State.DRAINING and self._is_empty:
                break
        self._drain()
        if self._updating is not None:  # a sequence that joins now is refused, and not lost
            await asyncio.wait({self._updating})

    def _dispatch(self, burst: bytes) -> None:
        for number, event in decode_burst(burst):
            if stream := self._streams.get(number):  # else it has left
                stream.put(event)
                if event.finish_reason is not None:
                    self._remove(stream)

    def _end(self, failure: BaseException) -> None:
        self._state = _State.ENDED
        if self._updating is not None:
            self._updating.cancel()
        for stream in self._leaving:
            stream.abort()
        lost = [*self._streams.values()]
        if isinstance(failure, ReplicaSilentError):  # elsewhere, they would come to the same one
            lost += self._joining
        else:
            self._reassign_all(self._joining)
        for stream in lost:
            stream.fail(failure)

    def _reassign_all(self, streams: Iterable[ChannelStream]) -> None:
        for stream in streams:
            self._reassign(stream)

    def _next_joins(self) -> list[ChannelStream]:
        """The sequences that go with the next message."""
        n = count_fitting(request_weight(one.join.request) for one in self._joining)
        joining, self._joining = self._joining[:n], self._joining[n:]
        self._streams.update((one.join.number, one) for one in joining)
        return joining

    def _schedule_update(self) -> None:
        if self._state is _State.OPEN and self._updating is None:
            self._updating = create_detached_task(self._send_updates())

    async def _send_updates(self) -> None:
        try:
            while self._state is _State.OPEN and (self._joining or self._leaving):
                await self._send_update(self._next_joins(), [*self._leaving])
        finally:
            self._updating = None

    async def _send_update(
        self, joining: list[ChannelStream], leaving: list[ChannelStream]
    ) -> None:
        joins = [one.join for one in joining]
        update = encode_update(joins, [Leave(one.join.number, one.is_complete) for one in leaving])
        try:
            is_known = await self._call_update(update, UPDATE_TIMEOUT_S)
        except Exception as failure:
            log.warning("a channel to %s could not be updated: %r", self._model, failure)
            self._update_failed(joining, leaving, failure)
            return
        if is_known:
            del self._leaving[: len(leaving)]
        else:
            self._channel_unknown(joining)

    async def _call_update(self, update: bytes, timeout_s: float) -> bool:
        """Whether the call reached the replica of this channel. Raises why it reached none."""
        async with asyncio.timeout(timeout_s):
            model = await self._handles.model(self._model)
            response = model.update_channel.remote(self._pin, self._name, update)
            is_known: bool = await call_result(response)
        return is_known

    async def _send_heartbeats(self) -> None:
        """Without them the replica takes this ingress for dead. They do not wait for each other."""
        while True:
            await asyncio.gather(self._send_heartbeat(), asyncio.sleep(HEARTBEAT_S))

    async def _send_heartbeat(self) -> None:
        """Also while it drains: a replica that was unavailable may be reached again."""
        if not self._streams or self._state not in (_State.OPEN, _State.DRAINING):
            return
        try:
            await self._call_update(encode_update((), ()), HEARTBEAT_S)
        except Exception as failure:
            log.warning("a channel to %s got no heartbeat: %r", self._model, failure)

    def _update_failed(
        self, joining: list[ChannelStream], leaving: list[ChannelStream], failure: Exception
    ) -> None:
        """The replica may know the sequences or not: they are aborted, and are lost."""
        del self._leaving[: len(leaving)]
        for stream in leaving:
            stream.abort()
        for stream in joining:
            if self._remove(stream):
                stream.fail(failure)

    def _channel_unknown(self, joining: list[ChannelStream]) -> None:
        """The call reached a replica without this channel: the right one stops, or ended it."""
        self._drain()
        unknown = [one for one in joining if self._remove(one)]
        waiting, self._joining = self._joining, []
        self._reassign_all([*unknown, *waiting])
        if self._leaving or self._is_empty:
            self._cancel()
