"""Streams that outlive their connections: named by the client, kept for a while, bounded.

A process keeps its own: behind several replicas a client may come back to one that knows nothing.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.detached_tasks import create_detached_task
from deployments.ingress.generation.answer import EVENT_HEADERS, Answer, run_while_connected
from deployments.ingress.generation.caller import CONVERSATION_ID
from deployments.ingress.generation.delayed_answer import DelayedAnswer
from deployments.ingress.http.app import PRINTABLE
from deployments.ingress.http.auth import offered_keys
from deployments.ingress.streams.replay_buffer import ReplayBuffer
from deployments.wire import ErrorKind, Refused, refused

MAX_ID_LENGTH = 128
StreamKey = tuple[bytes, str]  # digest of the client's keys, and its name of the conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """most: streams of a process.
    capacity: bytes of one; the oldest go first.
    kept_s: until one that has ended is forgotten.
    idle_s: until one that goes on and has no reader is stopped.
    """

    most: int = 64
    capacity: int = 4 << 20
    kept_s: float = 300.0
    idle_s: float = 300.0


@dataclass(slots=True, eq=False)
class KeptStream:
    key: StreamKey
    replay: ReplayBuffer
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    # Stops the stream. It runs while there is no reader, and after the end.
    timer: asyncio.TimerHandle | None = None
    readers: int = 0


@dataclass(slots=True, eq=False)
class ResumableStreams:
    limits: StreamLimits = StreamLimits()
    _kept: dict[StreamKey, KeptStream] = field(default_factory=dict)  # oldest first
    running: set[asyncio.Task[None]] = field(default_factory=set)

    def keeper(self, headers: Headers) -> Callable[[Answer | DelayedAnswer], ASGIApp] | None:
        """A function that makes an answer outlive its connection; None if the headers do not ask
        for that. Raises Refused.

        An answer that is no stream stays as it is.
        """
        name = headers.get(CONVERSATION_ID)
        if name is None:
            return None
        key = stream_key(headers, name, "X-Conversation-Id")
        return lambda answer: _Resumable(self, key, answer) if answer.is_stream else answer

    def find(self, key: StreamKey) -> KeptStream | None:
        return self._kept.get(key)

    def start(self, key: StreamKey, answer: ASGIApp, scope: Scope) -> KeptStream:
        """Stops an earlier stream of this name. Raises Refused."""
        self.stop(key)
        self._make_room()
        kept = self._kept[key] = KeptStream(key, ReplayBuffer(self.limits.capacity))
        task = create_detached_task(self._run(kept, answer, scope))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return kept

    def stop(self, key: StreamKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            _cancel_timer(kept)
            kept.stopped.set()

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

    async def _run(self, kept: KeptStream, answer: ASGIApp, scope: Scope) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                kept.replay.append(message["body"])

        async def receive() -> Message:
            await kept.stopped.wait()
            return {"type": "http.disconnect"}

        failure: Exception | None = None
        try:
            await answer(scope, receive, send)
        except Exception as error:
            failure = error
        finally:
            kept.replay.finish(failure)
            _cancel_timer(kept)
            # A stream without a byte is not kept.
            self._end_after(self.limits.kept_s if kept.replay.is_begun else 0, kept)

    def _end_after(self, seconds: float, kept: KeptStream) -> None:
        if self._kept.get(kept.key) is kept:
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(seconds, self.stop, kept.key)

    def _make_room(self) -> None:
        """Stops a stream that has ended, or else one without a reader. Raises Refused."""
        if len(self._kept) < self.limits.most:
            return
        unread = [kept for kept in self._kept.values() if not kept.readers]
        if not unread:
            message = f"All {self.limits.most} resumable streams of this server are in use"
            raise Refused.of_kind(ErrorKind.OVERLOADED, message)
        self.stop(max(unread, key=lambda kept: kept.replay.is_done).key)


def stream_key(headers: Headers, name: str, param: str) -> StreamKey:
    """Requests with other API keys have other streams. Raises Refused."""
    if len(name) > MAX_ID_LENGTH or not PRINTABLE.fullmatch(name):
        message = f"`{param}` must be 1 to {MAX_ID_LENGTH} printable characters"
        raise refused(message, param)
    keys = "\n".join(sorted(set(offered_keys(headers))))
    return sha256(keys.encode("latin-1")).digest(), name


class StreamReader:
    """A response with a stream's bytes from an offset on. The stream outlives it."""

    def __init__(self, streams: ResumableStreams, kept: KeptStream, offset: int) -> None:
        self._streams = streams
        self._kept = kept
        self._offset = offset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.reading(self._kept):
            try:
                await run_while_connected(self._respond(send), receive)
            except OSError:  # uvicorn raises it when the client has left
                return

    async def _respond(self, send: Send) -> None:
        replay = self._kept.replay
        await replay.until_begun()
        replay.check(self._offset)
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
        async with aclosing(replay.read(self._offset)) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Resumable:
    def __init__(
        self, streams: ResumableStreams, key: StreamKey, answer: Answer | DelayedAnswer
    ) -> None:
        self._streams = streams
        self._key = key
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            kept = self._streams.start(self._key, self._answer, scope)
        except Refused as refusal:
            self._answer.refuse(refusal)
        await StreamReader(self._streams, kept, 0)(scope, receive, send)


def _cancel_timer(kept: KeptStream) -> None:
    if kept.timer is not None:
        kept.timer.cancel()
        kept.timer = None
