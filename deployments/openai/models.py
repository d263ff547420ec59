"""Lists the models, in OpenAI's form or in Anthropic's for its own clients."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from deployments.anthropic.error_body import anthropic_envelope
from deployments.anthropic.models import VERSION_HEADER, anthropic_model, anthropic_page
from deployments.ingress.fleet.cluster import Cluster, card_if_up, find_model
from deployments.ingress.http.app import request_id_of
from deployments.ingress.http.errors import error_response
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.sse import encode
from deployments.ingress.routes.model_management import TAG, reload_if_asked
from deployments.ingress.routes.model_status import status_object
from deployments.wire import ModelCard, ModelStatus, Refused, media_kinds

OWNER = "manta"

Endpoint = Callable[[Request], Awaitable[object]]


def model_routes(cluster: Cluster) -> list[DocumentedRoute]:
    async def list_models(request: Request) -> object:
        await reload_if_asked(cluster, request)
        statuses = await cluster.statuses()
        if VERSION_HEADER in request.headers:
            return await anthropic_page(cluster, statuses, request.query_params)
        return {"object": "list", "data": await model_objects(cluster, statuses)}

    async def retrieve_model(request: Request) -> object:
        status = find_model(await cluster.statuses(), request.path_params["id"])
        if VERSION_HEADER in request.headers:
            return await anthropic_model(cluster, status)
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
    described: dict[str, object] = {
        "id": status.name,
        "object": "model",
        "created": status.created,
        "owned_by": OWNER,
        "aliases": list(status.aliases),
        "tags": list(status.tags),
        "status": status_object(status),
    }
    if card is None:
        return described
    inputs = ["text", *map(str, media_kinds(card))]
    described["architecture"] = {"input_modalities": inputs, "output_modalities": ["text"]}
    context = card.context_length
    meta = {"n_vocab": card.vocab_size, "n_ctx": context, "n_ctx_train": context}
    return {**described, "max_model_len": context, "meta": meta}


def _route(path: str, endpoint: Endpoint, query: Sequence[str] = ()) -> DocumentedRoute:
    async def answer(request: Request) -> Response:
        try:
            body = encode(await endpoint(request))
        except Refused as refusal:
            if VERSION_HEADER not in request.headers:
                raise
            return error_response(refusal.error, anthropic_envelope, request_id_of(request))
        return Response(body, media_type="application/json")

    name = endpoint.__name__
    return DocumentedRoute(path, answer, methods=["GET"], name=name, tag=TAG, query=query)
