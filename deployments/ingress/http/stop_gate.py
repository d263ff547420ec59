"""Refuses requests that come after the server was told to stop, and counts those before it."""

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.http.errors import CLOSE_CONNECTION, ErrorFormat, error_response
from deployments.ingress.stopping import Stopping

STOPPING = RequestError(ErrorKind.UNAVAILABLE, "The server is stopping; try again soon")
# Their answers are made at once, or have no end: a feed of states, say.
UNCOUNTED = frozenset({"GET", "HEAD", "OPTIONS"})


class StopGate:
    def __init__(self, app: ASGIApp, stopping: Stopping, envelope: ErrorFormat) -> None:
        self._app = app
        self._stopping = stopping
        self._envelope = envelope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._stopping.is_told:
            request_id = scope["state"]["request_id"]
            refusal = error_response(STOPPING, self._envelope, request_id, CLOSE_CONNECTION)
            await refusal(scope, receive, send)
        elif scope["method"] in UNCOUNTED:
            await self._app(scope, receive, send)
        else:
            with self._stopping.counted():
                await self._app(scope, receive, send)
