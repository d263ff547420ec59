"""The routes of responses: create, count tokens, retrieve, list items, cancel, delete."""

from collections.abc import Callable, Sequence

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.ingress.generation.caller import Sender
from deployments.ingress.http.clients import owner_of
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.paging import index_after, page_size
from deployments.ingress.http.sse import encode
from deployments.ingress.routes.service import Operation, Service
from deployments.openai.responses.builder import ResponsesBuilder
from deployments.openai.responses.encryption import ThoughtCipher
from deployments.openai.responses.input_tokens import responses_input_tokens
from deployments.openai.responses.schema import ResponsesRequest, parse_response_request
from deployments.openai.responses.store import ResponseStore, StoredItem, StoredResponse
from deployments.wire import ErrorKind, Refused, refused

ONE = "/v1/responses/{id}"
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 100  # items
ORDERS = ("desc", "asc")


def responses_routes(service: Service) -> list[Route]:
    store, cipher = ResponseStore(), ThoughtCipher(service.settings.encryption_key)
    return [
        service.question(responses_input_tokens(store, cipher)),
        service.route(responses(store, cipher)),
        *stored_routes(store),
    ]


def responses(store: ResponseStore, cipher: ThoughtCipher) -> Operation[ResponsesRequest]:
    def builder(sender: Sender) -> ResponsesBuilder:
        owner = sender.owner
        return ResponsesBuilder(store.of(owner), cipher.of(owner), sender.headers)

    return Operation(
        name="responses",
        path="/v1/responses",
        body=ResponsesRequest,
        parse=parse_response_request,
        builder=builder,
    )


def stored_routes(store: ResponseStore) -> list[Route]:
    async def retrieve(request: Request) -> Response:
        _refuse_streaming(request.query_params)
        return _json(_named(request, store).body)

    async def delete(request: Request) -> Response:
        found = _named(request, store)
        store.of(owner_of(request)).delete(found.id)
        return _json(encode({"id": found.id, "object": "response", "deleted": True}))

    async def cancel(request: Request) -> Response:
        message = f"The response {_named(request, store).id!r} has ended and cannot be cancelled"
        raise refused(message, "id")

    async def input_items(request: Request) -> Response:
        return _json(_page(_named(request, store).input, request.query_params))

    return [
        _route(ONE, retrieve, "GET", "retrieve_response"),
        _route(ONE, delete, "DELETE", "delete_response"),
        _route(f"{ONE}/cancel", cancel, "POST", "cancel_response"),
        _route(f"{ONE}/input_items", input_items, "GET", "input_items"),
    ]


def _route(path: str, endpoint: Callable[..., object], method: str, name: str) -> Route:
    return DocumentedRoute(path, endpoint, methods=[method], name=name, tag="Stored responses")


def _named(request: Request, store: ResponseStore) -> StoredResponse:
    response_id = request.path_params["id"]
    found = store.of(owner_of(request)).get(response_id)
    if found is None:
        message = f"There is no stored response {response_id!r}"
        raise Refused.of_kind(ErrorKind.NOT_FOUND, message, "id")
    return found


def _refuse_streaming(query: QueryParams) -> None:
    if query.get("stream", "false").lower() != "false":
        raise refused("`stream` is not supported: a stored response has ended", "stream")
    if "starting_after" in query:
        raise refused(
            "`starting_after` requires `stream`, which is not supported", "starting_after"
        )


def _page(items: Sequence[StoredItem], query: QueryParams) -> bytes:
    """Newest first by default."""
    order = _order(query)
    ordered = list(items if order == "asc" else reversed(items))
    start = index_after([one.id for one in ordered], query, "after")
    end = start + page_size(query, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    page = ordered[start:end]
    more = encode(end < len(ordered))
    ends = [encode(one.id) for one in page[:1] + page[-1:]] or [b'""', b'""']
    data = b",".join(item.body for item in page)
    form = b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}'
    return form % (data, ends[0], ends[-1], more)


def _order(query: QueryParams) -> str:
    order = query.get("order", "desc")
    if order not in ORDERS:
        raise refused(f"`order` must be one of {', '.join(ORDERS)}", "order")
    return order


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
