"""Refuses requests, and handshakes of WebSockets, to names that are not the server's."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.host_names import HostNames
from deployments.ingress.http.errors import ErrorFormat, error_response


class HostCheck:
    """A check of the Host header for servers without keys. Programs that send none are no pages."""

    def __init__(self, app: ASGIApp, names: HostNames, envelope: ErrorFormat) -> None:
        self._app = app
        self._names = names
        self._envelope = envelope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = None if scope["type"] == "lifespan" else Headers(scope=scope).get("host")
        if host is None or await self._names.know(host):
            await self._app(scope, receive, send)
            return
        message = f"This server is not called {host!r}. Its setting `hosts` may list more names"
        error = RequestError(ErrorKind.MISDIRECTED, message)
        response = error_response(error, self._envelope, scope["state"]["request_id"])
        await response(scope, receive, send)
