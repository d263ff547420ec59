"""An answer that begins before it is prepared, because its model takes long to load."""

import asyncio
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from deployments.contract.errors import Refused
from deployments.ingress.generation.answer import (
    EVENT_HEADERS,
    SPACE,
    Answer,
    body_headers,
    while_connected,
)
from deployments.ingress.generation.response_builder import ResponseBuilder
from deployments.ingress.http.errors import public_error
from deployments.ingress.metrics import InflightGuard


class DelayedAnswer:
    """Sends a keep-alive every `silence_s` until `preparing` has made the answer.

    If that fails the answer ends with the error: a stream's last event, or a unary one's body.
    """

    def __init__(
        self,
        preparing: asyncio.Task[Answer],
        builder: ResponseBuilder[Any],
        guard: InflightGuard,
        *,
        stream: bool,
        silence_s: float,
        request_id: str,
    ) -> None:
        self._preparing = preparing
        self._builder = builder
        self._guard = guard
        self._silence_s = silence_s
        self._request_id = request_id
        self.is_stream = stream

    def refuse(self, refusal: Refused) -> NoReturn:
        """Ends the answer before it has begun."""
        self._preparing.cancel()
        with self._guard:
            raise refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._guard.until_answered():
                answer = await while_connected(self._prepared(send), receive)
        except ClientDisconnect:
            return
        except Refused as refusal:
            if not self.is_stream:
                raise
            frames = self._builder.format_refusal(public_error(refusal.error, self._request_id))
            await send({"type": "http.response.body", "body": frames, "more_body": False})
            return
        answer.is_begun = True
        await answer(scope, receive, send)

    async def _prepared(self, send: Send) -> Answer:
        try:
            await self._wait(send)
            return self._preparing.result()
        finally:
            self._preparing.cancel()
            del self._preparing  # its failure, which holds this frame, would be in a cycle

    async def _wait(self, send: Send) -> None:
        headers = EVENT_HEADERS if self.is_stream else body_headers(self._builder)
        silence = self._builder.keep_alive if self.is_stream else SPACE
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not self._preparing.done():
                await send({"type": "http.response.body", "body": silence, "more_body": True})
                await asyncio.wait({self._preparing}, timeout=self._silence_s)
        except OSError as error:  # uvicorn raises it when the client has left
            raise ClientDisconnect from error
