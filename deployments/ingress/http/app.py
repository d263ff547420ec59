"""The middleware around every route: full paths, request ids, errors in the protocol's format."""

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.ingress.http.access_log import CLIENT_LEFT, log_request
from deployments.ingress.http.auth import Auth, PublicFolder
from deployments.ingress.http.body_budget import BodyBudget
from deployments.ingress.http.cors import cors
from deployments.ingress.http.docs import docs_routes
from deployments.ingress.http.errors import ENDINGS, ErrorFormat, error_response, internal_error
from deployments.ingress.http.hosts import HostCheck
from deployments.ingress.http.lingering import Lingering
from deployments.ingress.http.openapi import Documentation, openapi
from deployments.ingress.http.sockets import NoSockets, answering
from deployments.ingress.http.stop_gate import StopGate
from deployments.ingress.settings import DEFAULTS, IngressSettings

logger = logging.getLogger(__name__)

EXCHANGES = ("http", "websocket")
REQUEST_ID = "x-request-id"
REQUEST_ID_BYTES = REQUEST_ID.encode()
PRINTABLE = re.compile(r"[!-~]+")
MAX_REQUEST_ID_LENGTH = 512
UNUSABLE_ID = RequestError(
    ErrorKind.INVALID_REQUEST,
    f"`X-Request-ID` must be 1 to {MAX_REQUEST_ID_LENGTH} visible ASCII characters",
)

Handler = Callable[[Request, Exception], Awaitable[Response]]


def protocol_app(
    routes: Sequence[BaseRoute],
    envelope: ErrorFormat,
    settings: IngressSettings = DEFAULTS,
    *,
    public: frozenset[str] = frozenset(),
    documented: Documentation | None = None,
) -> ASGIApp:
    """An ASGI application. Every answer, 404 and 500 included, is in the protocol's format.

    Paths in `public` need no key; nor does what is `documented`, which tells no secrets.
    """
    if documented is not None:
        public |= {documented.document, documented.page}
        described = partial(openapi, documented, routes, envelope, public=public)
        document = partial(described, keys=bool(settings.api_keys))
        routes = [*docs_routes(documented, document), *routes]
    return PlainPaths(_bounded(routes, envelope, settings, public))


def folder_app(
    routes: Sequence[BaseRoute],
    envelope: ErrorFormat,
    settings: IngressSettings,
    public: PublicFolder,
) -> ASGIApp:
    """Like `protocol_app`, for routes of files: a slash at the end of a path matters to them."""
    return FullPaths(_bounded(routes, envelope, settings, public))


def _bounded(
    routes: Sequence[BaseRoute],
    envelope: ErrorFormat,
    settings: IngressSettings,
    public: Container[str],
) -> ASGIApp:
    guarded = _guarded(_served(routes, envelope, settings), envelope, settings, public)
    return Lingering(ErrorBoundary(guarded, envelope), all_may_end=not settings.sees_peers)


def _served(
    routes: Sequence[BaseRoute], envelope: ErrorFormat, settings: IngressSettings
) -> ASGIApp:
    app = DirectPosts(_plain_app(routes, envelope), routes, envelope)
    return NoSockets(BodyBudget(app, settings), routes, envelope)


def _plain_app(routes: Sequence[BaseRoute], envelope: ErrorFormat) -> Starlette:
    app = Starlette(routes=list(routes), exception_handlers=exception_handlers(envelope))
    app.router.redirect_slashes = False
    return app


def _guarded(
    app: ASGIApp, envelope: ErrorFormat, settings: IngressSettings, public: Container[str]
) -> ASGIApp:
    if settings.api_keys:
        app = Auth(app, settings.api_keys, public, envelope, settings.key_owners)
    elif settings.host_names is not None:
        app = HostCheck(app, settings.host_names, envelope)
    if settings.stopping is not None:
        app = StopGate(app, settings.stopping, envelope)
    return cors(app, settings.cors_origins) if settings.cors_origins else app


class FullPaths:
    """Clears root_path, which Serve sets to the route prefix, so that routes match full paths."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in EXCHANGES:
            scope = {**scope, "root_path": "", "path": self.plain(scope["path"])}
        await self.app(scope, receive, send)

    def plain(self, path: str) -> str:
        return path


class PlainPaths(FullPaths):
    """A path may have a slash at its end, which some clients add."""

    def plain(self, path: str) -> str:
        return path.removesuffix("/") or path


class DirectPosts:
    """Calls the endpoint of a POST directly, which costs less than Starlette's router."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], envelope: ErrorFormat) -> None:
        self.app = app
        self.envelope = envelope
        posts = (
            route
            for route in routes
            if isinstance(route, Route) and "POST" in (route.methods or ())
        )
        self._posts = {post.path: post.endpoint for post in posts if not post.param_convertors}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._posts.get(scope["path"]) if posted else None
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await endpoint(request)
            await response(scope, receive, send)
        except (ClientDisconnect, *ENDINGS):
            raise
        except BaseException as failure:
            progress: _Progress = scope["state"]["progress"]
            if progress.started and not progress.may_be_json:
                raise
            error = failure.error if isinstance(failure, Refused) else internal_error(failure)
            refusal = error_response(error, self.envelope, request_id_of(request))
            if progress.started:
                await send({"type": "http.response.body", "body": refusal.body})
            else:
                await refusal(scope, receive, send)
            if not isinstance(failure, Refused):
                raise  # to be logged


class ErrorBoundary:
    """Adds the request id to every response, answers every failure, and logs every request."""

    def __init__(self, app: ASGIApp, envelope: ErrorFormat) -> None:
        self.app = app
        self.envelope = envelope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in EXCHANGES:
            await self.app(scope, receive, send)
            return
        offered = Headers(scope=scope).get(REQUEST_ID)
        is_usable = offered is None or _is_usable(offered)
        request_id = offered if offered and is_usable else uuid.uuid4().hex
        progress = _Progress(answering(scope, send), request_id)
        state = {**scope.get("state", {}), "request_id": request_id, "progress": progress}
        scope = {**scope, "state": state}
        began = time.perf_counter()
        try:
            if is_usable:
                await self._answer(scope, receive, progress, request_id)
            else:
                # Here: a protocol without Serve takes a third of its memory.
                from deployments.telemetry.logs import bind_request_id

                bind_request_id(request_id)  # Serve has taken the other one for it
                refusal = error_response(UNUSABLE_ID, self.envelope, request_id)
                await refusal(scope, receive, progress)
        finally:
            log_request(scope, progress.status, time.perf_counter() - began)

    async def _answer(
        self, scope: Scope, receive: Receive, progress: "_Progress", request_id: str
    ) -> None:
        try:
            await self.app(scope, receive, progress)
        except ClientDisconnect:
            logger.info("request %s: the client left while it was sending", request_id)
        except ENDINGS:
            raise
        except BaseException as failure:
            logger.exception("request %s", request_id)
            if progress.started and not progress.complete:
                raise  # the server breaks the connection, so that the answer does not look complete
            if not progress.started:
                response = error_response(internal_error(failure), self.envelope, request_id)
                await response(scope, receive, progress)


class _Progress:
    """Passes messages on with the request id, and records how far the response has come."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status: int | None = None  # once it has started
        self.complete = False
        self._is_json = False
        self._has_text = False

    @property
    def may_be_json(self) -> bool:
        """Whether any JSON may be its body still: it is JSON, and only spaces were sent of it."""
        return self._is_json and not self._has_text

    @property
    def started(self) -> bool:
        return self.status is not None

    async def __call__(self, message: Message) -> None:
        if message["type"].endswith("http.response.start"):
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self._request_id
            self._is_json = headers.get("content-type") == "application/json"
        elif message["type"].endswith("http.response.body"):
            self.complete = not message.get("more_body", False)
            self._has_text = self._has_text or not message.get("body", b"").isspace()
        await self._send(message)


class SingleRequestId:
    """Removes the id where Serve adds the client's: SDKs would read the two as one value."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def once(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0] != REQUEST_ID_BYTES]
                message = {**message, "headers": headers}
            await send(message)

        if not any(name == REQUEST_ID_BYTES for name, _ in scope.get("headers", ())):
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, once)


def _is_usable(request_id: str) -> bool:
    return len(request_id) <= MAX_REQUEST_ID_LENGTH and bool(PRINTABLE.fullmatch(request_id))


def request_id_of(request: Request) -> str:
    return str(request.scope["state"]["request_id"])


def exception_handlers(envelope: ErrorFormat) -> Mapping[type[Exception], Handler]:
    async def on_refused(request: Request, failure: Exception) -> Response:
        assert isinstance(failure, Refused)
        return error_response(failure.error, envelope, request_id_of(request))

    async def on_http(request: Request, failure: Exception) -> Response:
        assert isinstance(failure, HTTPException)
        error = _routing_error(request, failure)
        headers = {**(failure.headers or {}), **_allowed(request, failure)}
        return error_response(error, envelope, request_id_of(request), headers)

    async def on_left(request: Request, failure: Exception) -> Response:
        """Returns a status for the log: there is nobody to answer."""
        return Response(status_code=CLIENT_LEFT)

    async def on_failure(request: Request, failure: Exception) -> Response:
        return error_response(internal_error(failure), envelope, request_id_of(request))

    return {
        Refused: on_refused,
        HTTPException: on_http,
        ClientDisconnect: on_left,
        Exception: on_failure,
    }


def _routing_error(request: Request, failure: HTTPException) -> RequestError:
    asked = f"{request.method} {request.url.path}"
    if failure.status_code == 404:
        return RequestError(ErrorKind.NOT_FOUND, f"There is no {asked}")
    if failure.status_code == 405:
        return RequestError(ErrorKind.METHOD_NOT_ALLOWED, f"{asked} is not allowed")
    return internal_error(failure)


def _allowed(request: Request, failure: HTTPException) -> Mapping[str, str]:
    """All methods of the path; Starlette has only those of the first route, or of a folder."""
    if failure.status_code != 405:
        return {}
    of_path = [
        route.methods or ()
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is Match.PARTIAL
    ]
    return {"Allow": ", ".join(sorted(set().union(*of_path)))} if of_path else {}
