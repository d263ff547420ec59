"""Answers that Serve's Python proxy gives for applications that do not run yet.

Light: the proxy imports it before it opens its port.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

VARIABLE = "MANTA_STARTING_ANSWERS"  # JSON: bodies by route prefix
RETRY_AFTER_S = 2


def middlewares() -> list[Middleware]:
    """Serve calls it in each of its HTTP servers."""
    return [Middleware(StartingAnswers, bodies=json.loads(os.environ.get(VARIABLE, "{}")))]


class StartingAnswers:
    """Until the application of a path runs, its body is the answer; once it runs, never again."""

    def __init__(self, app: ASGIApp, bodies: Mapping[str, str]) -> None:
        self._app = app
        self._router = router_of(app)
        self._bodies = dict(sorted(bodies.items(), key=lambda item: -len(item[0])))
        self._running: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = self._not_running(scope) if self._router is not None else None
        if prefix is None:
            await self._app(scope, receive, send)
            return
        body = self._bodies[prefix].encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"%d" % RETRY_AFTER_S),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _not_running(self, scope: Scope) -> str | None:
        """The prefix of the application of this path, while it does not run."""
        if scope["type"] != "http" or len(self._running) == len(self._bodies):
            return None
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path.startswith("/-/"):  # Serve's own
            return None
        prefix = next((candidate for candidate in self._bodies if is_below(path, candidate)), None)
        if prefix is None or prefix in self._running:
            return None
        found = self._router.match_route(path)
        if found is None or found[0] != prefix or not found[1].running_replicas_populated():
            return prefix
        self._running.add(prefix)
        return None


def router_of(app: Any) -> Any:
    """Finds the proxy's table of routes and replicas; None in the server of a replica. Serve may
    put other middleware between.
    """
    while app is not None and not hasattr(app, "proxy_router"):
        app = getattr(app, "_app", None)
    return None if app is None else app.proxy_router


def is_below(path: str, prefix: str) -> bool:
    return prefix == "/" or path == prefix or path.startswith(f"{prefix}/")
