"""The application of `/ui`: the page for everybody, and its endpoints for who has a key."""

from pathlib import Path

from starlette.types import ASGIApp

from deployments.ingress.error_bodies import llama_envelope
from deployments.ingress.http.app import folder_app
from deployments.ingress.http.auth import PublicFolder
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.web.api.opening import StoreOpener
from deployments.web.api.routes import API, api_routes
from deployments.web.files import page_routes
from deployments.web.headers import PageHeaders
from deployments.web.settings import PREFIX, WebSettings

PUBLIC = PublicFolder(prefix=PREFIX, private=API)


def app(
    web: WebSettings, settings: IngressSettings = DEFAULTS, opener: StoreOpener | None = None
) -> ASGIApp:
    """`opener`: of the store; without it chats stay in browsers."""
    api = api_routes(opener, settings, web.defaults)
    routes = [*api, *page_routes(Path(web.page))]
    return PageHeaders(folder_app(routes, llama_envelope, settings, PUBLIC), web.connect_origins)
