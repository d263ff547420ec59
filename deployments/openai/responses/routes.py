"""The routes of responses: create, count tokens, retrieve, list items, cancel, delete."""

from collections.abc import Callable, Sequence

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, refused
from deployments.ingress.http.clients import connection_of, owner_of
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.sse import encode
from deployments.ingress.routes.service import Operation, Service
from deployments.ingress.settings import IngressSettings
from deployments.openai.responses.builder import ResponsesBuilder
from deployments.openai.responses.encryption import ThoughtCipher
from deployments.openai.responses.input_tokens import responses_input_tokens
from deployments.openai.responses.item_pages import QUERY, ItemPage, json_answer
from deployments.openai.responses.schema import ResponsesRequest, parse_response_request
from deployments.openai.responses.store import OwnedResponses, ResponseStore
from deployments.store.items import no_response

ONE = "/v1/responses/{id}"


def responses_routes(service: Service, store: ResponseStore) -> list[Route]:
    cipher = ThoughtCipher(service.settings.encryption_key)
    return [
        service.unary_route(responses_input_tokens(store, cipher)),
        service.route(responses(store, cipher)),
        *stored_routes(store, service.settings),
    ]


def responses(store: ResponseStore, cipher: ThoughtCipher) -> Operation[ResponsesRequest]:
    return Operation(
        name="responses",
        path="/v1/responses",
        body=ResponsesRequest,
        parse=parse_response_request,
        builder=lambda context: ResponsesBuilder(store, cipher, context),
        refusals=[ErrorKind.STORAGE_FULL],
    )


def stored_routes(store: ResponseStore, settings: IngressSettings) -> list[Route]:
    def asked(request: Request) -> tuple[OwnedResponses, str]:
        client = connection_of(request, sees_peers=settings.sees_peers)
        return store.for_owner(owner_of(request), client), request.path_params["id"]

    async def retrieve(request: Request) -> Response:
        _refuse_streaming(request.query_params)
        owned, response_id = asked(request)
        body = await owned.body(response_id)
        if body is None:
            raise no_response(response_id, "id")
        return json_answer(body)

    async def delete(request: Request) -> Response:
        owned, response_id = asked(request)
        if not await owned.delete(response_id):
            raise no_response(response_id, "id")
        return json_answer(encode({"id": response_id, "object": "response", "deleted": True}))

    async def cancel(request: Request) -> Response:
        owned, response_id = asked(request)
        if await owned.body(response_id) is None:
            raise no_response(response_id, "id")
        message = f"The response {response_id!r} has ended and cannot be cancelled"
        raise refused(message, "id")

    async def input_items(request: Request) -> Response:
        owned, response_id = asked(request)
        page = ItemPage(request.query_params)
        items = await owned.input_items(response_id, page)
        if items is None:
            raise no_response(response_id, "id")
        return json_answer(page.body(items))

    return [
        _route(ONE, retrieve, "GET", "retrieve_response"),
        _route(ONE, delete, "DELETE", "delete_response"),
        _route(f"{ONE}/cancel", cancel, "POST", "cancel_response"),
        _route(f"{ONE}/input_items", input_items, "GET", "input_items", QUERY),
    ]


def _route(
    path: str,
    endpoint: Callable[..., object],
    method: str,
    name: str,
    query: Sequence[str] = (),
) -> Route:
    return DocumentedRoute(
        path, endpoint, methods=[method], name=name, tag="Stored responses", query=query
    )


def _refuse_streaming(query: QueryParams) -> None:
    if query.get("stream", "false").lower() != "false":
        raise refused("`stream` is not supported: a stored response has ended", "stream")
    if "starting_after" in query:
        raise refused(
            "`starting_after` requires `stream`, which is not supported", "starting_after"
        )
