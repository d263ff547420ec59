"""An answer that begins before it is prepared, because its model takes long to load."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from deployments.contract.errors import Refused, RequestError
from deployments.ingress.generation.answer import Answer, Headers, while_connected
from deployments.ingress.http.errors import public_error
from deployments.ingress.http.sse import StreamType
from deployments.ingress.metrics import InflightGuard


class DelayedAnswer:
    """Sends `silence` every `silence_s` until `preparing` has made the answer.

    If that fails the answer ends with the error: a stream's last event, which `format_refusal`
    makes, or a unary one's body.
    """

    def __init__(
        self,
        preparing: asyncio.Task[Answer],
        guard: InflightGuard,
        *,
        headers: Headers,
        silence: bytes,
        silence_s: float,
        request_id: str,
        stream_type: StreamType | None = None,
        format_refusal: Callable[[RequestError], bytes] | None = None,
    ) -> None:
        self._preparing = preparing
        self._guard = guard
        self._headers = headers
        self._silence = silence
        self._silence_s = silence_s
        self._request_id = request_id
        self.stream_type = stream_type
        self._format_refusal = format_refusal

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
            if self._format_refusal is None:
                raise
            frames = self._format_refusal(public_error(refusal.error, self._request_id))
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
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            while not self._preparing.done():
                await send({"type": "http.response.body", "body": self._silence, "more_body": True})
                await asyncio.wait({self._preparing}, timeout=self._silence_s)
        except OSError as error:  # uvicorn raises it when the client has left
            raise ClientDisconnect from error
