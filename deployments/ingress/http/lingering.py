"""Reads what is left of a request's body before an answer that did not need it.

A server that closes a connection while bytes come in resets it, and the client, which reads only
when it has sent all, never sees the answer: an error above all.
"""

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# As nginx' lingering close has them: for all of the rest, and for the next bytes of it.
REST_S, SILENCE_S = 30.0, 5.0
MAX_REST_BYTES = 64 << 20


class Lingering:
    """Serves connections that end with the answer. `all_may_end`: which do can't be seen."""

    def __init__(self, app: ASGIApp, *, all_may_end: bool) -> None:
        self._app = app
        self._all_may_end = all_may_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._lingers(scope):
            await self._app(scope, receive, send)
            return
        body = RequestBody(receive)

        async def send_after(message: Message) -> None:
            if message["type"] == "http.response.start":
                await body.discard_rest()
            await send(message)

        await self._app(scope, body.receive, send_after)

    def _lingers(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            return False
        if headers.get("expect", "").lower() == "100-continue":  # it sends nothing unless asked to
            return False
        ends = (
            headers.get("connection", "").lower() == "close" or scope.get("http_version") == "1.0"
        )
        return ends or self._all_may_end


class RequestBody:
    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_ended = False
        self._is_read = False  # by somebody at this moment

    async def receive(self) -> Message:
        self._is_read = True
        try:
            message = await self._receive()
        finally:
            self._is_read = False
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._has_ended = True
        return message

    async def discard_rest(self) -> None:
        left = MAX_REST_BYTES
        try:
            async with asyncio.timeout(REST_S):
                while left > 0 and not self._has_ended and not self._is_read:
                    async with asyncio.timeout(SILENCE_S):
                        left -= len((await self.receive()).get("body", b""))
        except TimeoutError:
            return
