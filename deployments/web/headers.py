"""The headers of every answer of `web`: nothing runs, loads or frames but its own."""

from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    # Inline styles are for diagrams and for the positions of menus.
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src {connect}; img-src 'self' data: blob:; media-src blob:; font-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self)",
}


class PageHeaders:
    """Adds them to all answers, errors included, that don't have their own.

    connect_origins: whom the page may ask beside its own server.
    """

    def __init__(self, app: ASGIApp, connect_origins: Sequence[str] = ()) -> None:
        self.app = app
        policy = POLICY.format(connect=" ".join(("'self'", *connect_origins)))
        self._headers = {"content-security-policy": policy, **HEADERS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)
