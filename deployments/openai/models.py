"""Lists the models, in OpenAI's form or in Anthropic's for its own clients."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from deployments.anthropic.error_body import anthropic_envelope
from deployments.ingress.fleet.cluster import Cluster, card_if_up, find
from deployments.ingress.http.app import request_id_of
from deployments.ingress.http.errors import error_response
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.sse import encode
from deployments.ingress.routes.model_management import TAG, reload_if_asked
from deployments.ingress.routes.model_status import status_object
from deployments.wire import ModelCard, ModelStatus, Refused, refused

OWNER = "manta"
ANTHROPIC = "anthropic-version"  # the header that all of Anthropic's clients send
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 1000  # Anthropic's

Endpoint = Callable[[Request], Awaitable[object]]


def model_routes(cluster: Cluster) -> list[DocumentedRoute]:
    async def list_models(request: Request) -> object:
        await reload_if_asked(cluster, request)
        statuses = await cluster.statuses()
        if ANTHROPIC in request.headers:
            return await _anthropic_page(cluster, statuses, request.query_params)
        return {"object": "list", "data": await model_objects(cluster, statuses)}

    async def retrieve_model(request: Request) -> object:
        status = find(await cluster.statuses(), request.path_params["id"])
        if ANTHROPIC in request.headers:
            return await _anthropic_model(cluster, status)
        [described] = await model_objects(cluster, [status])
        return described

    return [
        _route("/v1/models", list_models, query=["reload"]),
        _route("/v1/models/{id:path}", retrieve_model),
    ]


async def model_objects(
    cluster: Cluster, statuses: Sequence[ModelStatus]
) -> list[dict[str, object]]:
    cards = await asyncio.gather(*(card_if_up(cluster, status) for status in statuses))
    return [_model(*one) for one in zip(statuses, cards, strict=True)]


def _model(status: ModelStatus, card: ModelCard | None) -> dict[str, object]:
    """OpenAI's fields and llama-server's status. A loaded model has the sizes that llama-server and
    vLLM show, too.
    """
    told = {
        "id": status.name,
        "object": "model",
        "created": status.created,
        "owned_by": OWNER,
        "aliases": list(status.aliases),
        "tags": list(status.tags),
        "status": status_object(status),
    }
    if card is None:
        return told
    context = card.context_length
    meta = {"n_vocab": card.vocab_size, "n_ctx": context, "n_ctx_train": context}
    return {**told, "max_model_len": context, "meta": meta}


def _route(path: str, endpoint: Endpoint, query: Sequence[str] = ()) -> DocumentedRoute:
    async def answer(request: Request) -> Response:
        try:
            body = encode(await endpoint(request))
        except Refused as refusal:
            if ANTHROPIC not in request.headers:
                raise
            return error_response(refusal.error, anthropic_envelope, request_id_of(request))
        return Response(body, media_type="application/json")

    name = endpoint.__name__
    return DocumentedRoute(path, answer, methods=["GET"], name=name, tag=TAG, query=query)


async def _anthropic_page(
    cluster: Cluster, models: Sequence[ModelStatus], query: QueryParams
) -> object:
    start, end = _window([status.name for status in models], query)
    more = start > 0 if "before_id" in query else end < len(models)
    if "active" not in (_lifecycles(query) or ["active"]):
        start, end, more = 0, 0, False  # none is deprecated or retired
    page = await asyncio.gather(*(_anthropic_model(cluster, one) for one in models[start:end]))
    return {
        "data": page,
        "has_more": more,
        "first_id": models[start].name if page else None,
        "last_id": models[end - 1].name if page else None,
    }


async def _anthropic_model(cluster: Cluster, status: ModelStatus) -> object:
    card = await card_if_up(cluster, status)
    released = datetime.fromtimestamp(status.created, UTC).isoformat().replace("+00:00", "Z")
    return {
        "type": "model",
        "id": status.name,
        "display_name": status.name,
        "created_at": released,
        "lifecycle": "active",
        "max_input_tokens": None if card is None else card.context_length,
    }


def _window(names: Sequence[str], query: QueryParams) -> tuple[int, int]:
    """Where a page starts and ends."""
    limit = _limit(query.get("limit", str(DEFAULT_PAGE_SIZE)))
    if "before_id" in query and "after_id" in query:
        raise refused("`before_id` cannot be combined with `after_id`", "before_id")
    if "before_id" in query:
        end = _place(names, query, "before_id")
        return max(0, end - limit), end
    start = _place(names, query, "after_id") + 1 if "after_id" in query else 0
    return start, min(start + limit, len(names))


def _place(names: Sequence[str], query: QueryParams, cursor: str) -> int:
    if query[cursor] not in names:
        raise refused(f"`{cursor}` must be the id of a model", cursor)
    return names.index(query[cursor])


def _limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else 0
    if not 1 <= number <= MAX_PAGE_SIZE:
        raise refused(f"`limit` must be a number from 1 to {MAX_PAGE_SIZE}", "limit")
    return number


def _lifecycles(query: QueryParams) -> list[str]:
    return query.getlist("lifecycle") + query.getlist("lifecycle[]")
