"""Streams that outlive their connections: named by the client, kept for a while, bounded, owned.

A process keeps its own, and knows of its peers that keep others.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, Refused, RequestError, refused
from deployments.ingress.generation.answer import Answer, run_while_connected
from deployments.ingress.generation.caller import CONVERSATION_ID
from deployments.ingress.generation.delayed_answer import DelayedAnswer
from deployments.ingress.http.app import PRINTABLE
from deployments.ingress.http.body_budget import BodyAccount, account_in
from deployments.ingress.http.clients import owner_of
from deployments.ingress.http.errors import ENDINGS, internal_error
from deployments.ingress.http.sse import StreamType
from deployments.ingress.streams.peers import StreamKey, StreamPeers, StreamState
from deployments.ingress.streams.replay_buffer import ReplayBuffer
from deployments.serving.detached_tasks import create_detached_task
from deployments.serving.fair_share import FairShare

logger = logging.getLogger(__name__)

MAX_ID_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """most: streams of a process, of which one client has 8 of 9 at most.
    readers: of these streams, of which the same is true.
    capacity: bytes of one; the oldest go first.
    kept_s: until one that has ended is forgotten.
    idle_s: until one that goes on and has no reader is stopped.
    """

    most: int = 64
    readers: int = 128
    capacity: int = 4 << 20
    kept_s: float = 300.0
    idle_s: float = 300.0


@dataclass(slots=True, eq=False)
class KeptStream:
    key: StreamKey
    client: str
    stream_type: StreamType
    replay: ReplayBuffer
    began: float = field(default_factory=time.time)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    # Stops the stream. It runs while there is no reader, and after the end.
    timer: asyncio.TimerHandle | None = None
    readers: int = 0

    def state(self, replica_id: str) -> StreamState:
        return StreamState(
            name=self.key[1],
            replica_id=replica_id,
            stream_type=self.stream_type,
            total=self.replay.total,
            began=self.began,
            completed_at=self.replay.completed_at,
        )


@dataclass(slots=True, eq=False)
class ResumableStreams:
    """`peers` is None where there can't be any."""

    limits: StreamLimits = StreamLimits()
    peers: StreamPeers | None = None
    _kept: dict[StreamKey, KeptStream] = field(default_factory=dict)  # oldest first
    _shares: FairShare = field(init=False)
    _readers: FairShare = field(init=False)
    running: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shares = FairShare(self.limits.most)
        self._readers = FairShare(self.limits.readers)

    def keeper(
        self, request: Request, client: str
    ) -> Callable[[Answer | DelayedAnswer], ASGIApp] | None:
        """A function that makes an answer outlive its connection; None if the headers do not ask
        for that. Raises Refused.

        An answer that is no stream stays as it is.
        """
        name = request.headers.get(CONVERSATION_ID)
        if name is None:
            return None
        key = stream_key(owner_of(request), name, "X-Conversation-Id")

        def keep(answer: Answer | DelayedAnswer) -> ASGIApp:
            if answer.stream_type is None:
                return answer
            return _Resumable(self, key, client, answer, answer.stream_type)

        return keep

    def find(self, key: StreamKey) -> KeptStream | None:
        return self._kept.get(key)

    def states(self, owner: str, names: Sequence[str], replica_id: str = "") -> list[StreamState]:
        """Returns the states of the streams that are kept here."""
        found = (self._kept.get((owner, name)) for name in dict.fromkeys(names))
        return [kept.state(replica_id) for kept in found if kept is not None]

    async def find_all(self, owner: str, names: Sequence[str]) -> list[StreamState]:
        """The newest stream of each name, wherever it is kept, in the names' order."""
        states = self.states(owner, names)
        if self.peers is not None:
            states += await self.peers.find(owner, names)
        newest = {state.name: state for state in sorted(states, key=lambda stream: stream.began)}
        return [newest[name] for name in dict.fromkeys(names) if name in newest]

    async def stop_elsewhere(self, key: StreamKey) -> None:
        if self.peers is not None:
            await self.peers.stop(key, time.time())

    def start(
        self, key: StreamKey, client: str, answer: ASGIApp, stream_type: StreamType, scope: Scope
    ) -> KeptStream:
        """Stops an earlier stream of this name. Raises Refused."""
        self.stop(key)
        self._make_room(client)
        replay = ReplayBuffer(self.limits.capacity)
        kept = self._kept[key] = KeptStream(key, client, stream_type, replay)
        self._shares.acquire(client)
        account = account_in(scope)
        if account is not None:  # the stream has the body for as long as it runs
            account.share()
        self._spawn(self._run(kept, answer, scope, account))
        if self.peers is not None:
            self._spawn(self.peers.stop(key, kept.began))
        return kept

    def stop(self, key: StreamKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._shares.release(kept.client)
            _cancel_timer(kept)
            kept.stopped.set()

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Counts a reader, also one of a stream that is not kept any more. Raises Refused."""
        if self._readers.is_used_up(client):
            n_own = self._readers.acquired_by(client)
            raise _overloaded(f"This client has {n_own} readers of resumable streams already")
        self._readers.acquire(client)
        try:
            yield
        finally:
            self._readers.release(client)

    @contextmanager
    def reading(self, kept: KeptStream) -> Iterator[None]:
        """A stream is not stopped while it has a reader."""
        kept.readers += 1
        if not kept.replay.is_done:
            _cancel_timer(kept)
        try:
            yield
        finally:
            kept.readers -= 1
            if not kept.readers and not kept.replay.is_done:
                self._end_after(self.limits.idle_s, kept)

    async def _run(
        self, kept: KeptStream, answer: ASGIApp, scope: Scope, account: BodyAccount | None
    ) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                kept.replay.append(message["body"])

        async def receive() -> Message:
            await kept.stopped.wait()
            return {"type": "http.disconnect"}

        failure: RequestError | None = None  # no exception: its frames would hold the stream
        try:
            await answer(scope, receive, send)
        except Refused as refusal:
            failure = refusal.error
        except ENDINGS:
            raise
        except BaseException as error:
            logger.exception("a resumable stream")
            failure = internal_error(error)
        finally:
            if account is not None:
                account.close()
            kept.replay.finish(failure)
            _cancel_timer(kept)
            # A stream without a byte is not kept.
            self._end_after(self.limits.kept_s if kept.replay.is_begun else 0, kept)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = create_detached_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    def _end_after(self, seconds: float, kept: KeptStream) -> None:
        if self._kept.get(kept.key) is kept:
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(seconds, self.stop, kept.key)

    def _make_room(self, client: str) -> None:
        """Stops a stream without a reader: of the client that has the most of them, which is not
        one with less than this client; one that has ended, if there is one. Raises Refused.
        """
        if not self._shares.is_used_up(client):
            return
        acquired = self._shares.acquired_by
        unread = [kept for kept in self._kept.values() if not kept.readers]
        spare = [kept for kept in unread if acquired(kept.client) >= acquired(client)]
        if not spare:
            raise _overloaded(f"All of the {self.limits.most} resumable streams are in use")
        self.stop(max(spare, key=lambda kept: (acquired(kept.client), kept.replay.is_done)).key)


def stream_key(owner: str, name: str, param: str) -> StreamKey:
    """Other owners have other streams. Raises Refused."""
    if len(name) > MAX_ID_LENGTH or not PRINTABLE.fullmatch(name):
        message = f"`{param}` must be 1 to {MAX_ID_LENGTH} printable characters"
        raise refused(message, param)
    return owner, name


class StreamReader:
    """A stream's bytes from an offset on, for a reader that is admitted. The stream outlives it."""

    def __init__(self, streams: ResumableStreams, kept: KeptStream, offset: int) -> None:
        self._streams = streams
        self._kept = kept
        self._offset = offset

    async def respond(self, receive: Receive, send: Send) -> None:
        with self._streams.reading(self._kept):
            try:
                await run_while_connected(self._send(send), receive)
            except OSError:  # uvicorn raises it when the client has left
                return

    async def _send(self, send: Send) -> None:
        replay = self._kept.replay
        await replay.until_begun()
        replay.check(self._offset)
        headers = self._kept.stream_type.raw_headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(replay.read(self._offset)) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Resumable:
    def __init__(
        self,
        streams: ResumableStreams,
        key: StreamKey,
        client: str,
        answer: Answer | DelayedAnswer,
        stream_type: StreamType,
    ) -> None:
        self._streams = streams
        self._key = key
        self._client = client
        self._answer = answer
        self._stream_type = stream_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._streams.admitted(self._client))
                kept = self._streams.start(
                    self._key, self._client, self._answer, self._stream_type, scope
                )
            except Refused as refusal:
                self._answer.refuse(refusal)
            await StreamReader(self._streams, kept, 0).respond(receive, send)


def _overloaded(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.OVERLOADED, message)


def _cancel_timer(kept: KeptStream) -> None:
    if kept.timer is not None:
        kept.timer.cancel()
        kept.timer = None
