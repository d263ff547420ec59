"""Takes a body whose type is not said for JSON, as llama-server does, except from other sites.

A page may send such a body to any server unasked, and could load models or call tools that way: the
request of one that is not this server's stays as it is, and is refused for its type.
"""

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.ingress.http.origin import is_own_page

UNSAID = ("", "application/x-www-form-urlencoded")  # the second is what curl says by itself


class JsonBodies:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            request = Request(scope)
            given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if given in UNSAID and is_own_page(request):
                scope = {**scope, "headers": [*scope["headers"]]}
                MutableHeaders(scope=scope)["content-type"] = "application/json"
        await self._app(scope, receive, send)
