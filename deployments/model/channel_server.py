"""A replica's end of its channels: each is one stream that carries the events of many sequences.

A sequence gives its next event only after the last one was sent, so that a slow reader gets more in
each. The sequences of a channel end with it, and so do files of those that have not joined yet. A
channel with sequences sends a heartbeat when it has no events, however long a step takes: an
ingress takes a silent replica for lost.
"""

import asyncio
import logging
import pickle
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress

from deployments.contract.channel import (
    CHANNEL_IDLE_S,
    HEARTBEAT,
    HEARTBEAT_S,
    PICKLE_PROTOCOL,
    Burst,
    FilePiece,
    Join,
    Leave,
    count_fitting,
    decode_update,
    event_weight,
    with_files,
)
from deployments.contract.errors import ErrorKind
from deployments.contract.events import TokenEvent, merge
from deployments.contract.requests import GenerationRequest
from deployments.serving.detached_tasks import create_detached_task
from deployments.telemetry import logs

log = logging.getLogger("ray.serve")

# Without a call for so long the ingress is taken for dead. Of one that lives four heartbeats in a
# row may be lost, or reach other replicas while Ray calls this one unavailable.
CLIENT_TIMEOUT_S = 30.0

GATHER_S = 0.1  # An ingress has as much work with an event of one token as with one of ten.

# The last argument says, when the sequence is left, whether its reader has all of the answer.
RunSequence = Callable[
    [str, GenerationRequest, Callable[[], bool]], AsyncGenerator[TokenEvent, None]
]


class ChannelServer:
    def __init__(self, run: RunSequence, idle_s: float) -> None:
        self._run = run
        self._idle_s = idle_s
        self._running: dict[int, asyncio.Task[None]] = {}
        self._complete: set[int] = set()
        self._files: dict[int, dict[int, bytearray]] = {}  # of sequences that are to join
        self._pending: Burst = []
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()  # set when all pending events are sent
        self.last_update = time.monotonic()

    def receive(self, pieces: Sequence[FilePiece]) -> None:
        for number, file, data in pieces:
            self._files.setdefault(number, {}).setdefault(file, bytearray()).extend(data)
        self._changed.set()

    def join(self, joins: Sequence[Join]) -> None:
        for join in joins:
            assert join.number not in self._running
            files = self._files.pop(join.number, None)
            whole = join if files is None else with_files(join, files)
            self._running[join.number] = create_detached_task(self._pump(whole))
        self._changed.set()

    def leave(self, leaves: Sequence[Leave]) -> None:
        for number, is_complete in leaves:
            self._files.pop(number, None)
            if number in self._running:
                if is_complete:
                    self._complete.add(number)
                self._running[number].cancel()
        self._changed.set()

    def end(self) -> None:
        """Ends all sequences."""
        numbers = (*self._running, *self._files)
        self.leave([Leave(number, is_complete=False) for number in numbers])

    async def bursts(self) -> AsyncGenerator[Burst, None]:
        """The events since the last burst; an empty burst is a heartbeat.

        Ends when there has been no sequence for `idle_s`.
        """
        while await self._is_used():
            await self._until(lambda: bool(self._pending) or self._is_idle, HEARTBEAT_S)
            if not self._is_idle:
                yield self._take()

    @property
    def _is_idle(self) -> bool:
        return not (self._pending or self._running or self._files)

    async def _is_used(self) -> bool:
        """Waits up to `idle_s` for a sequence when there is none."""
        await self._until(lambda: not self._is_idle, self._idle_s)
        return not self._is_idle

    async def _until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Waits until `condition()`, and no longer than `within_s`."""
        if condition():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

    def _take(self) -> Burst:
        n = count_fitting(event_weight(event) for _, event in self._pending)
        taken, self._pending = self._pending[:n], self._pending[n:]
        if not self._pending:
            self._taken.set()
            self._taken = asyncio.Event()
        return taken

    async def _pump(self, one: Join) -> None:
        logs.bind_request_id(one.log_id)
        try:
            await self._forward(one)
        except Exception:
            log.exception("sequence %s", one.request.request_id)
            self._push(one.number, TokenEvent.failed("the replica failed", ErrorKind.INTERNAL))
        finally:
            del self._running[one.number]
            self._complete.discard(one.number)
            self._changed.set()

    async def _forward(self, one: Join) -> None:
        def is_complete() -> bool:
            return one.number in self._complete

        run = self._run(one.version, one.request, is_complete)
        async with aclosing(gather(run) if one.request.may_gather else run) as events:
            async for event in events:
                self._push(one.number, event)
                if event.finish_reason is not None:
                    return
                await self._taken.wait()
        self._push(one.number, TokenEvent.failed("the sequence has no end", ErrorKind.UNAVAILABLE))

    def _push(self, number: int, event: TokenEvent) -> None:
        self._pending.append((number, event))
        self._changed.set()


async def gather(events: AsyncGenerator[TokenEvent, None]) -> AsyncGenerator[TokenEvent, None]:
    """The first and the last at once, and what comes between them at most every GATHER_S. Closing
    it closes `events`.
    """
    gathered: list[TokenEvent] = []
    due = time.monotonic()
    async with aclosing(events):
        async for event in events:
            gathered.append(event)
            if event.finish_reason is not None or time.monotonic() >= due:
                yield merge(gathered)
                gathered, due = [], time.monotonic() + GATHER_S


class ChannelServers:
    """All channels that are open to one replica. Belongs to one event loop."""

    def __init__(self, replica_id: str, run: RunSequence, idle_s: float = CHANNEL_IDLE_S) -> None:
        self._replica_id = replica_id
        self._run = run
        self._idle_s = idle_s
        self._open: dict[str, ChannelServer] = {}

    async def open(self, name: str, update: bytes) -> AsyncGenerator[bytes, None]:
        """The replica's id, and then bursts."""
        with self._opened(name, self._idle_s) as channel:
            self.update(name, update)
            yield self._replica_id.encode()
            async with aclosing(channel.bursts()) as bursts:
                async for burst in bursts:
                    yield pickle.dumps(burst, PICKLE_PROTOCOL)

    async def open_single(
        self, version: str, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """The events of one sequence, on a channel of its own with the name of its request."""
        with self._opened(request.request_id, idle_s=0.0) as channel:
            channel.join([Join(0, logs.request_id(), version, request)])
            async with aclosing(channel.bursts()) as bursts:
                async for burst in bursts:
                    yield merge([event for _, event in burst]) if burst else HEARTBEAT

    @contextmanager
    def _opened(self, name: str, idle_s: float) -> Iterator[ChannelServer]:
        channel = self._open[name] = ChannelServer(self._run, idle_s)
        try:
            yield channel
        finally:
            channel.end()
            if self._open.get(name) is channel:
                del self._open[name]

    def update(self, name: str, update: bytes) -> bool:
        """Adds and removes sequences; False when there is no channel of this name.

        An empty update is a heartbeat of the ingress.
        """
        channel = self._open.get(name)
        if channel is None:
            return False
        channel.last_update = time.monotonic()
        joins, leaves, pieces = decode_update(update)
        channel.receive(pieces)
        channel.join(joins)
        channel.leave(leaves)
        return True

    def heartbeat(self, names: Iterable[str]) -> None:
        """The ingress of these single sequences lives; some of them may run on other replicas."""
        for name in names:
            if name in self._open:
                self._open[name].last_update = time.monotonic()

    def complete(self, names: Iterable[str]) -> None:
        """The readers of these single sequences have all of the answer."""
        for name in names:
            if name in self._open:
                self._open[name].leave([Leave(0, is_complete=True)])

    def expire(self) -> None:
        """Ends channels whose ingress is gone: Ray does not end the calls of a dead caller."""
        since = time.monotonic() - CLIENT_TIMEOUT_S
        for name, channel in [*self._open.items()]:
            if channel.last_update <= since:
                log.warning("a channel ends: its ingress sent nothing for %g s", CLIENT_TIMEOUT_S)
                channel.end()
                del self._open[name]
