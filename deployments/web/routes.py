"""The application of `/ui`: the page for everybody, and its endpoints for who has a key."""

from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from deployments.ingress.http.app import folder_app
from deployments.ingress.http.auth import PublicFolder
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.llama.error_body import envelope
from deployments.web.files import page_routes
from deployments.web.headers import PageHeaders
from deployments.web.settings import PREFIX, WebSettings

API = f"{PREFIX}/api"
PUBLIC = PublicFolder(prefix=PREFIX, private=API)


def app(
    web: WebSettings, settings: IngressSettings = DEFAULTS, api: Sequence[BaseRoute] | None = None
) -> ASGIApp:
    """`api`: what answers below `/ui/api`, with full paths; without it chats stay in browsers."""
    own = without_store(settings) if api is None else api
    routes = [*own, *page_routes(Path(web.page))]
    return PageHeaders(folder_app(routes, envelope, settings, PUBLIC))


def without_store(settings: IngressSettings) -> list[Route]:
    async def me(request: Request) -> Response:
        """Who asks, and that nothing is stored here."""
        body: dict[str, object] = {
            "owner": None,
            "store": "none",
            "shared": not settings.api_keys,
            "defaults": {},
        }
        return JSONResponse(body)

    return [Route(f"{API}/me", me)]
