"""The routes of the store: `/ui/api`."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pydantic import BaseModel, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind
from deployments.ingress.error_bodies import llama_envelope
from deployments.ingress.http.openapi import Documentation, DocumentedRoute, openapi
from deployments.ingress.http.sse import encode
from deployments.ingress.settings import IngressSettings
from deployments.web.api.chats import JSON_LINES, ChatEndpoints
from deployments.web.api.files import ANY_TYPE, FileEndpoints
from deployments.web.api.guard import Endpoint, Guard, RequestLimits
from deployments.web.api.json_answer import JSON
from deployments.web.api.me import me_endpoint
from deployments.web.api.opening import StoreOpener
from deployments.web.api.schema import ChatBody, MessagesBody
from deployments.web.settings import PREFIX

API = f"{PREFIX}/api"
CHAT, FILE = f"{API}/chats/{{id}}", f"{API}/files/{{sha256}}"
DOCUMENTATION = Documentation(title="Chats", path=API)
NO_DEFAULTS: Mapping[str, JsonValue] = MappingProxyType({})
REQUEST_LIMITS = RequestLimits()
CONDITIONS = ("if-match", "if-none-match")
FULL = (ErrorKind.STORAGE_FULL,)


def api_routes(
    opener: StoreOpener | None,
    settings: IngressSettings,
    defaults: Mapping[str, JsonValue] = NO_DEFAULTS,
    limits: RequestLimits = REQUEST_LIMITS,
) -> list[Route]:
    """`opener`: None where nothing is stored. `defaults`: settings of the page for new users."""
    me = me_endpoint(opener, settings, defaults)
    if opener is None:  # there is nothing to guard
        return [Route(f"{API}/me", me)]
    guard = Guard(settings, limits)
    routes = [_route(guard, f"{API}/me", me, "GET"), *_store_routes(guard, opener, settings)]
    return [*routes, _document(guard, routes, settings)]


def _store_routes(guard: Guard, opener: StoreOpener, settings: IngressSettings) -> list[Route]:
    chats = ChatEndpoints(opener, settings, guard)
    files = FileEndpoints(opener, settings)
    route = partial(_route, guard)
    stale = (ErrorKind.STALE, ErrorKind.GONE, ErrorKind.CONDITION_NEEDED, *FULL)
    added = (ErrorKind.CONFLICT, ErrorKind.GONE, *FULL)
    changes = ("since", "limit", "wait")
    message = f"{CHAT}/messages/{{message}}"
    return [
        route(f"{API}/changes", chats.changes, "GET", query=changes, refusals=[ErrorKind.GONE]),
        route(CHAT, chats.put_chat, "PUT", body=ChatBody, headers=CONDITIONS, refusals=stale),
        route(CHAT, chats.delete_chat, "DELETE", media_types=()),
        route(f"{CHAT}/messages", chats.add_messages, "POST", body=MessagesBody, refusals=added),
        route(message, chats.delete_message, "DELETE", media_types=()),
        route(FILE, files.get, "GET", media_types=[ANY_TYPE]),
        route(FILE, files.put, "PUT", media_types=(), refusals=[ErrorKind.WRONG_DIGEST, *FULL]),
        route(f"{API}/export", chats.export, "GET", media_types=[JSON_LINES]),
    ]


def _route(
    guard: Guard,
    path: str,
    endpoint: Endpoint,
    method: str,
    *,
    body: type[BaseModel] | None = None,
    media_types: Sequence[str] = (JSON,),
    query: Sequence[str] = (),
    headers: Sequence[str] = (),
    refusals: Collection[ErrorKind] = (),
) -> DocumentedRoute:
    return DocumentedRoute(
        path,
        guard.guarded(endpoint, writes=method != "GET"),
        methods=[method],
        name=endpoint.__name__,
        tag="Chats",
        body=body,
        media_types=media_types,
        query=query,
        headers=headers,
        refusals=[ErrorKind.RATE_LIMITED, *refusals],
    )


def _document(guard: Guard, routes: Sequence[Route], settings: IngressSettings) -> Route:
    keys = bool(settings.api_keys)

    async def document(request: Request) -> Response:
        described = openapi(DOCUMENTATION, routes, llama_envelope, keys=keys, public=frozenset())
        return Response(encode(described), media_type=JSON)

    endpoint = guard.guarded(document, writes=False)
    return Route(DOCUMENTATION.document, endpoint, methods=["GET"], include_in_schema=False)
