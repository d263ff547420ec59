"""An answer as an ASGI response that owns its generations: however it ends, none outlives it."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from deployments.contract.errors import Refused, RequestError
from deployments.ingress.generation.choice_merge import ChoiceDelta
from deployments.ingress.generation.deadline import Deadline
from deployments.ingress.generation.deltas import Deltas
from deployments.ingress.generation.response_builder import ResponseBuilder, UnaryBuilder
from deployments.ingress.generation.warnings import warning_headers
from deployments.ingress.http.access_log import note_tokens
from deployments.ingress.http.errors import public_error
from deployments.ingress.http.sse import StreamType
from deployments.ingress.metrics import InflightGuard
from deployments.ingress.stopping import Stopping, ending
from deployments.text.stream import TextDelta, fold

ValueT = TypeVar("ValueT")

SPACE = b" "
MAX_SCORED_ON_LOOP = 256  # tokens of prompts, whose log-probabilities are formatted on the loop

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerParts:
    """The parts of every answer. `probe_s`: see Answer; `warnings` go into headers."""

    deltas: Deltas
    guard: InflightGuard
    probe_s: float | None
    deadline: Deadline
    request_id: str
    warnings: Sequence[str] = ()
    stopping: Stopping | None = None


class Answer(ABC):
    """Starts its generations when it is sent, and closes them when the client leaves.

    Serve's HAProxy splices requests: it does not notice a client that leaves before the response
    begins. Behind it `probe_s` is set: an answer that takes longer sends its status first.
    `is_begun`: the status was sent before the answer was made.
    """

    stream_type: StreamType | None = None  # of an answer that is a stream

    def __init__(self, parts: AnswerParts) -> None:
        self._deltas = parts.deltas
        self._guard = parts.guard
        self._probe_s = parts.probe_s
        self.is_begun = False
        self._deadline = parts.deadline
        self._request_id = parts.request_id
        self._more_headers = warning_headers(parts.warnings)
        self._stopping = parts.stopping

    def refuse(self, refusal: Refused) -> NoReturn:
        """Ends the answer before it has begun."""
        with self._guard:
            raise refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._guard:
            try:
                work = self._deadline.enforce(lambda: self._respond(send))
                await run_while_connected(work, receive)
            except OSError:  # uvicorn raises it when the client has left
                return
            finally:
                usage = self._deltas.usage
                self._guard.used(usage.prompt_tokens, usage.output_tokens, usage.cached_tokens)
                note_tokens(scope, usage.prompt_tokens, usage.output_tokens)

    @abstractmethod
    async def _respond(self, send: Send) -> None: ...

    def _count(self, choice: int, delta: TextDelta) -> None:
        self._deltas.usage.add(choice, delta)
        self._guard.produced(choice, delta.output_tokens)


class UnaryAnswer(Answer):
    """One body. After `probe_s` it sends a space every `probe_s`, which JSON permits. A later
    failure is its body then.
    """

    def __init__(self, builder: UnaryBuilder[Any], parts: AnswerParts) -> None:
        super().__init__(parts)
        self._builder = builder

    async def _respond(self, send: Send) -> None:
        async with self._deltas, ending(self._stopping, self._deltas.fail):
            headers = [*body_headers(self._builder), *self._more_headers]
            probe = Probe(self._probe_s, send, headers, began=self.is_begun)
            body = await self._body(probe)
        if not probe.has_begun:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _body(self, probe: "Probe") -> bytes:
        choices: dict[int, list[TextDelta]] = {}
        while not self._deltas.is_done:
            for choice, delta in await self._deadline.batch(self._deltas, self._probe_s):
                self._count(choice, delta)
                choices.setdefault(choice, []).append(delta)
            await probe.send_if_due()
        folded = [fold(choices[choice]) for choice in sorted(choices)]
        await self._builder.finish(folded, self._deltas.usage)
        work = partial(self._builder.format_response, folded, self._deltas.usage)
        n_scored = sum(len(whole.prompt_logprobs or ()) for whole in folded)
        body = await asyncio.to_thread(work) if n_scored > MAX_SCORED_ON_LOOP else work()
        self._guard.mark_ok()
        return body


class StreamAnswer(Answer):
    """Frames. Its status waits for the first delta, so that an early refusal keeps its own, but no
    longer than `keep_alive_s`: from then on keep-alives say that the server is there.
    """

    def __init__(
        self, builder: ResponseBuilder[Any], parts: AnswerParts, keep_alive_s: float | None
    ) -> None:
        super().__init__(parts)
        self._builder = builder
        self.stream_type = builder.stream_type
        self._keep_alive_s = keep_alive_s
        self._has_started = False  # whether the first frames of the stream were sent

    async def _respond(self, send: Send) -> None:
        async with self._deltas, ending(self._stopping, self._deltas.fail):
            first: list[ChoiceDelta] = []
            if not self.is_begun:
                silence_s = earliest(self._keep_alive_s, self._probe_s)
                first = await self._deadline.batch(self._deltas, silence_s)
                headers = [*self._builder.stream_type.raw_headers, *self._more_headers]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for frames in self._frames(first):
                await send({"type": "http.response.body", "body": frames, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _frames(self, batch: list[ChoiceDelta]) -> AsyncIterator[bytes]:
        frames = self._chunks(batch)
        sent = time.monotonic()
        try:
            while not self._deltas.is_done:
                silence_s = self._keep_alive_s
                if frames:
                    yield frames
                    frames, sent = b"", time.monotonic()
                elif silence_s is not None:  # deltas may come for long without a frame to send
                    silence_s = max(sent + silence_s - time.monotonic(), 0)
                frames = self._chunks(await self._deadline.batch(self._deltas, silence_s))
                if not frames and silence_s == 0:
                    frames = self._builder.stream_type.keep_alive
            if frames:
                yield frames
                frames = b""  # before what may wait for a store
            await self._builder.finish((), self._deltas.usage)
            frames += self._builder.format_stream_end(self._deltas.usage)
            self._guard.mark_ok()
        except Refused as refusal:
            self._guard.mark_error(refusal)
            frames += self._format_error(public_error(refusal.error, self._request_id))
        yield frames

    def _chunks(self, batch: list[ChoiceDelta]) -> bytes:
        """The first delta brings the start of the answer: before, it may be prepared again."""
        if not batch:
            return self._builder.stream_type.keep_alive
        frames: list[bytes] = []
        if not self._has_started:
            self._has_started = True
            frames.append(self._builder.format_stream_start())
        for choice, delta in batch:
            self._count(choice, delta)
            frames.append(self._builder.format_chunk(choice, delta, self._deltas.usage))
        return b"".join(frames)

    def _format_error(self, error: RequestError) -> bytes:
        if self._has_started:
            return self._builder.format_stream_error(error)
        return self._builder.format_refusal(error)


class Probe:
    """Sends a space every `interval_s`, so that a proxy notices when its client has left."""

    def __init__(
        self, interval_s: float | None, send: Send, headers: Headers, *, began: bool
    ) -> None:
        self._interval_s = interval_s
        self._send = send
        self._headers = headers
        self._last = time.monotonic()
        self.has_begun = began

    async def send_if_due(self) -> None:
        if self._interval_s is None or time.monotonic() < self._last + self._interval_s:
            return
        self._last = time.monotonic()
        if not self.has_begun:
            self.has_begun = True
            start = {"type": "http.response.start", "status": 200, "headers": self._headers}
            await self._send(start)
        await self._send({"type": "http.response.body", "body": SPACE, "more_body": True})


def body_headers(builder: UnaryBuilder[Any]) -> Headers:
    """Returns the headers of an answer that is no stream, without its length."""
    return [(b"content-type", builder.content_type)]


def earliest(*intervals_s: float | None) -> float | None:
    return min((interval_s for interval_s in intervals_s if interval_s is not None), default=None)


async def run_while_connected(work: Coroutine[object, object, None], receive: Receive) -> None:
    """Runs `work`, and cancels it when the client leaves or this is cancelled itself."""
    with suppress(ClientDisconnect):
        await while_connected(work, receive)


async def while_connected(work: Coroutine[object, object, ValueT], receive: Receive) -> ValueT:
    """The same for work with a result. Raises ClientDisconnect if the client leaves."""
    working = asyncio.create_task(work)
    tasks: list[asyncio.Task[Any]] = [working]
    try:
        await asyncio.sleep(0)  # work that waits for nothing needs no watch
        if not working.done():
            tasks.append(asyncio.create_task(_until_left(receive)))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    try:
        if working.cancelled():
            raise ClientDisconnect
        return working.result()
    finally:
        del working, task, tasks  # with them this frame, which a failure holds, is in a cycle


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
