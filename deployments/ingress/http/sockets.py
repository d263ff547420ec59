"""No WebSocket is opened yet: each handshake that the guards let in is refused in the protocol's
form, and an unknown kind of ASGI exchange ends where it began.
"""

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.http.errors import ErrorFormat, error_response

DENIAL = "websocket.http.response"  # ASGI's extension for the answer to a handshake
POLICY_VIOLATION = 1008


class NoSockets:
    """A path that HTTP serves answers 426, which tells clients to ask so at once."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], envelope: ErrorFormat) -> None:
        self._app = app
        self._routes = routes
        self._envelope = envelope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        refusal = error_response(self._error(scope), self._envelope, scope["state"]["request_id"])
        await refusal(scope, receive, send)

    def _error(self, scope: Scope) -> RequestError:
        asked = {**scope, "type": "http", "method": "GET"}
        path = scope["path"]
        if any(route.matches(asked)[0] is not Match.NONE for route in self._routes):
            message = f"{path} has no WebSocket: send the request over HTTP"
            return RequestError(ErrorKind.UPGRADE_REQUIRED, message)
        return RequestError(ErrorKind.NOT_FOUND, f"There is no WebSocket {path}")


def answering(scope: Scope, send: Send) -> Send:
    """`send`, for a server that can only close a handshake, too."""
    if scope["type"] != "websocket" or DENIAL in scope.get("extensions", {}):
        return send

    async def close(message: Message) -> None:
        if message["type"] == f"{DENIAL}.start":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    return close
