"""A transcript as an ASGI response: whole, or as events. It ends when its client leaves."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.types import Receive, Scope, Send

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.ingress.generation.answer import run_while_connected
from deployments.ingress.generation.deadline import GRACE_S
from deployments.ingress.http.access_log import note_tokens
from deployments.ingress.http.errors import public_error
from deployments.ingress.http.sse import EVENT_STREAM
from deployments.ingress.metrics import InflightGuard
from deployments.ingress.settings import IngressSettings
from deployments.openai.audio.bodies import (
    TYPES,
    format_body,
    format_delta,
    format_done,
    whole_text,
)
from deployments.openai.audio.transcriber import Heard, Transcriber

FormatError = Callable[[RequestError], bytes]


class TranscriptAnswer:
    def __init__(
        self,
        transcriber: Transcriber,
        guard: InflightGuard,
        settings: IngressSettings,
        format_error: FormatError,
    ) -> None:
        self._transcriber = transcriber
        self._guard = guard
        self._settings = settings
        self._format_error = format_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._guard:
            try:
                await run_while_connected(self._respond(send), receive)
            except OSError:  # the client has left
                return
            finally:
                made = self._transcriber
                self._guard.used(made.prompt_tokens, made.output_tokens, made.cached_tokens)
                note_tokens(scope, made.prompt_tokens, made.output_tokens)

    async def _respond(self, send: Send) -> None:
        timeout_s = self._settings.request_timeout_s
        if self._transcriber.asked.is_stream:
            await self._send_events(send)
            return
        try:
            async with asyncio.timeout(timeout_s):
                heard = [window async for window in self._transcriber.windows()]
        except TimeoutError:
            raise _late(timeout_s) from None
        body = format_body(self._transcriber, heard)
        self._guard.mark_ok()
        kind = TYPES[self._transcriber.asked.response_format]
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_events(self, send: Send) -> None:
        timeout_s = self._settings.request_timeout_s
        await send(
            {"type": "http.response.start", "status": 200, "headers": EVENT_STREAM.raw_headers}
        )
        try:
            async with asyncio.timeout(None if timeout_s is None else timeout_s + GRACE_S):
                await self._send_windows(send)
        except (Refused, TimeoutError) as failure:
            refusal = failure if isinstance(failure, Refused) else _late(timeout_s)
            self._guard.mark_error(refusal)
            error = public_error(refusal.error, self._transcriber.request_id)
            await _send(send, self._format_error(error))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_windows(self, send: Send) -> None:
        heard: list[Heard] = []
        async with aclosing(self._kept_alive()) as events:
            async for event in events:
                if event is None:
                    await _send(send, EVENT_STREAM.keep_alive)
                    continue
                is_first = not whole_text(heard)
                heard.append(event)
                if frames := format_delta(event, is_first=is_first):
                    await _send(send, frames)
        await _send(send, format_done(self._transcriber, whole_text(heard)))
        self._guard.mark_ok()

    async def _kept_alive(self) -> AsyncGenerator[Heard | None, None]:
        """The windows, and None after each while of silence."""
        windows = self._transcriber.windows()
        coming: asyncio.Task[Heard] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(windows))
                done, _ = await asyncio.wait({coming}, timeout=self._settings.keep_alive_s)
                if not done:
                    yield None
                    continue
                try:
                    heard = coming.result()
                except StopAsyncIteration:
                    return
                coming = None
                yield heard
        finally:
            if coming is not None and not coming.done():
                coming.cancel()
                await asyncio.wait({coming})


async def _send(send: Send, frames: bytes) -> None:
    await send({"type": "http.response.body", "body": frames, "more_body": True})


def _late(timeout_s: float | None) -> Refused:
    message = f"The answer took longer than the limit of {timeout_s:g} seconds"
    return Refused.of_kind(ErrorKind.GENERATION_TIMEOUT, message)
