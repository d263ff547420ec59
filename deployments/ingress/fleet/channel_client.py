"""An ingress's end of its channels: many sequences that a replica runs for it share one stream.

A sequence is sent at once, or with the next call if one is under way. Where its files are large,
pieces of them go first, one with each call, and others pass by. A sequence whose channel ends
before it does is lost, and may continue on another replica.
"""

import asyncio
import itertools
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import Enum, auto
from functools import partial

from deployments.contract.channel import (
    CHANNEL_IDLE_S,
    HEARTBEAT_S,
    FilePiece,
    Join,
    Leave,
    count_fitting,
    cut_files,
    decode_burst,
    encode_update,
    request_weight,
)
from deployments.contract.requests import GenerationRequest
from deployments.ingress.fleet.channel_stream import ChannelStream
from deployments.ingress.fleet.liveness import ReplicaSilentError, within_timeout
from deployments.ingress.fleet.serve_handles import (
    CallCancelledError,
    ServeHandles,
    call_result,
    cancelled_elsewhere,
)
from deployments.serving.detached_tasks import create_detached_task
from deployments.telemetry import logs

log = logging.getLogger("ray.serve")

UPDATE_TIMEOUT_S = 10.0
# The most sequences of a channel without a pin. Serve chooses the replica of such a channel: many
# sequences in one are not balanced, and a channel for each makes a burst slow.
MAX_UNPINNED = 16
Replica = tuple[str, str | None]  # a model's name and a pin


class ChannelClients:
    """Belongs to one event loop."""

    def __init__(self, handles: ServeHandles) -> None:
        self._handles = handles
        self._numbers = itertools.count()
        self._latest: dict[Replica, ChannelClient] = {}
        self._unshared: set[ChannelClient] = set()

    def start(
        self,
        model: str,
        pin: str | None,
        version: str,
        request: GenerationRequest,
        *,
        is_shared: bool = True,
    ) -> ChannelStream:
        """`is_shared`: with others, if there are any. A sequence without a pin shares with those
        alone that come while its channel opens.
        """
        join = Join(next(self._numbers), logs.request_id(), version, request)
        stream = ChannelStream(join, self._handles, model)
        assign = self._assign if is_shared else self._assign_own
        assign((model, pin), stream)
        return stream

    def _assign_own(self, replica: Replica, stream: ChannelStream) -> None:
        channel = ChannelClient(self._handles, replica, partial(self._assign_own, replica))
        self._unshared.add(channel)
        channel.work.add_done_callback(lambda _: self._unshared.discard(channel))
        channel.join(stream)

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
    """The state of a channel. It changes to a later one only.

    OPENING: the replica has not answered yet. Sequences that join wait for its answer.
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
        self._is_pinned = self._pin is not None  # at first; the replica that answers is its pin
        self._reassign = reassign
        self._name = uuid.uuid4().hex
        self._state = _State.OPENING
        self._idle_since = 0.0
        self._streams: dict[int, ChannelStream] = {}  # by number; the replica may know them
        self._joining: list[ChannelStream] = []
        # With what is left of their files. The replica knows those that have sent some.
        self._uploading: deque[tuple[ChannelStream, Iterator[FilePiece]]] = deque()
        self._leaving: list[ChannelStream] = []
        self._updating: asyncio.Task[None] | None = None
        self.work = create_detached_task(self._run())

    @property
    def accepts_joins(self) -> bool:
        """A channel that has been idle for long may be ending on the replica."""
        if self._state not in (_State.OPENING, _State.OPEN) or self.work.done():
            return False
        if not self._is_pinned:
            n = len({*self._streams.values(), *self._waiting})
            return self._state is _State.OPENING and n < MAX_UNPINNED
        is_idle = self._state is _State.OPEN and self._is_empty
        return not is_idle or time.monotonic() < self._idle_since + CHANNEL_IDLE_S / 2

    def join(self, stream: ChannelStream) -> None:
        stream.leave_channel = self.leave
        stream.is_confirmed = not self._waits_for_any
        if stream.has_pieces:
            self._uploading.append((stream, cut_files(stream.join)))
        else:
            self._joining.append(stream)
        self._schedule_update()

    def leave(self, stream: ChannelStream) -> bool:
        """False when the replica may know the sequence and can't be told that it has left."""
        is_waiting = stream in self._waiting
        self._dequeue(stream)
        if is_waiting and stream.join.number not in self._streams:
            pass  # the replica has heard nothing of it
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
    def _waits_for_any(self) -> bool:
        """The call may wait for a replica that does not exist yet, however long that takes."""
        return self._pin is None and self._state is _State.OPENING

    @property
    def _is_empty(self) -> bool:
        return not (self._streams or self._joining or self._uploading)

    @property
    def _waiting(self) -> list[ChannelStream]:
        """The sequences of which something is to be sent."""
        return [*self._joining, *(stream for stream, _ in self._uploading)]

    def _dequeue(self, stream: ChannelStream) -> None:
        """Nothing more of it is sent."""
        if stream in self._joining:
            self._joining.remove(stream)
        if stream.has_pieces:
            self._uploading = deque(upload for upload in self._uploading if upload[0] is not stream)

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
        pieces = self._next_piece()
        update = encode_update([stream.message for stream in self._next_joins(pieces)], (), pieces)
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
        first = anext(bursts, b"")
        self._pin = (await (first if self._waits_for_any else within_timeout(first))).decode()
        self._state = _State.OPEN
        for stream in (*self._streams.values(), *self._waiting):
            stream.is_confirmed = True
        for stream in self._streams.values():
            stream.is_taken = True
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
        has_opened = self._state is not _State.OPENING
        self._state = _State.ENDED
        if self._updating is not None:
            self._updating.cancel()
        for stream in self._leaving:
            stream.abort()
        lost = [*self._streams.values()]
        unsent = [queued for queued in self._waiting if queued.join.number not in self._streams]
        if isinstance(failure, ReplicaSilentError):
            # An update may not have been answered because of what came with it. An opening may not
            # have found a replica at all: all have died, and the next one takes its time.
            for stream in lost if has_opened else ():
                stream.is_taken = True
            lost += unsent  # elsewhere, they would come to the same one
        else:
            self._reassign_all(unsent)
        for stream in lost:
            stream.fail(failure)

    def _reassign_all(self, streams: Iterable[ChannelStream]) -> None:
        for stream in streams:
            self._reassign(stream)

    def _next_joins(self, pieces: list[FilePiece]) -> list[ChannelStream]:
        """The sequences that go with the next message, beside pieces."""
        weights = (request_weight(stream.message.request) for stream in self._joining)
        n = count_fitting(weights, pieces)
        joining, self._joining = self._joining[:n], self._joining[n:]
        self._streams.update((stream.join.number, stream) for stream in joining)
        return joining

    def _next_piece(self) -> list[FilePiece]:
        """The one that goes with the next message, if there is any. Sequences take turns."""
        while self._uploading:
            stream, pieces = self._uploading.popleft()
            if (piece := next(pieces, None)) is None:
                self._joining.append(stream)
                continue
            self._uploading.append((stream, pieces))
            self._streams[piece.number] = stream
            return [piece]
        return []

    def _schedule_update(self) -> None:
        if self._state is _State.OPEN and self._updating is None:
            self._updating = create_detached_task(self._send_updates())

    async def _send_updates(self) -> None:
        try:
            while self._state is _State.OPEN and (
                self._joining or self._leaving or self._uploading
            ):
                pieces = self._next_piece()
                await self._send_update(self._next_joins(pieces), [*self._leaving], pieces)
        finally:
            self._updating = None

    async def _send_update(
        self, joining: list[ChannelStream], leaving: list[ChannelStream], pieces: list[FilePiece]
    ) -> None:
        joins = [joiner.message for joiner in joining]
        leaves = [Leave(leaver.join.number, leaver.is_complete) for leaver in leaving]
        update = encode_update(joins, leaves, pieces)
        try:
            is_known = await self._call_update(update, UPDATE_TIMEOUT_S)
        except Exception as failure:
            log.warning("a channel to %s could not be updated: %r", self._model, failure)
            uploading = [
                self._streams[piece.number] for piece in pieces if piece.number in self._streams
            ]
            self._update_failed([*joining, *uploading], leaving, failure)
            return
        if is_known:
            del self._leaving[: len(leaving)]
            for stream in joining:
                stream.is_taken = True
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
        """Sends heartbeats, without which the replica takes this ingress for dead.

        They do not wait for each other.
        """
        while True:
            await asyncio.gather(self._send_heartbeat(), asyncio.sleep(HEARTBEAT_S))

    async def _send_heartbeat(self) -> None:
        """Sends a heartbeat, also while the channel drains.

        A replica that was unavailable may be reached again.
        """
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
            self._dequeue(stream)
            if self._remove(stream):
                stream.fail(failure)
                if stream.has_pieces:  # Nothing else would free those that did arrive.
                    self._leaving.append(stream)

    def _channel_unknown(self, joining: list[ChannelStream]) -> None:
        """The call reached a replica without this channel: the right one stops, or ended it."""
        self._drain()
        unknown = [joiner for joiner in joining if self._remove(joiner)]
        waiting, self._joining, self._uploading = self._waiting, [], deque()
        for stream in waiting:
            self._remove(stream)
        self._reassign_all([*unknown, *waiting])
        if self._leaving or self._is_empty:
            self._cancel()
