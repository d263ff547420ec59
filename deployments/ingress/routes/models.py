"""The routes that list models, in OpenAI's form or in Anthropic's for its own clients."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from deployments.contract.errors import Refused
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import ModelTask
from deployments.contract.weights_form import WeightsForm
from deployments.ingress.error_bodies import anthropic_envelope
from deployments.ingress.fleet.cluster import (
    Cluster,
    ServedModel,
    cards_of,
    find_served,
    served_models,
)
from deployments.ingress.generation.abilities import modalities_of, tasks_of
from deployments.ingress.http.app import request_id_of
from deployments.ingress.http.errors import error_response
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.sse import encode
from deployments.ingress.routes.anthropic_models import (
    VERSION_HEADER,
    anthropic_model,
    anthropic_page,
)
from deployments.ingress.routes.model_management import TAG, reload_if_asked
from deployments.ingress.routes.model_status import status_object

OWNER = "manta"

Endpoint = Callable[[Request], Awaitable[object]]


def model_routes(cluster: Cluster) -> list[DocumentedRoute]:
    async def list_models(request: Request) -> object:
        await reload_if_asked(cluster, request)
        statuses = await cluster.statuses()
        if VERSION_HEADER in request.headers:
            return await anthropic_page(cluster, statuses, request.query_params)
        return {"object": "list", "data": await model_objects(cluster, served_models(statuses))}

    async def retrieve_model(request: Request) -> object:
        model = find_served(await cluster.statuses(), request.path_params["id"])
        if VERSION_HEADER in request.headers:
            return await anthropic_model(cluster, model)
        [described] = await model_objects(cluster, [model])
        return described

    return [
        _route("/v1/models", list_models, query=["reload"]),
        _route("/v1/models/{id:path}", retrieve_model),
    ]


async def model_objects(cluster: Cluster, models: Sequence[ServedModel]) -> list[dict[str, object]]:
    cards = await cards_of(cluster, models)
    return [_model(model, cards[model.status.name]) for model in models]


def _model(model: ServedModel, card: ModelCard | None) -> dict[str, object]:
    """OpenAI's fields, llama-server's status, and vLLM's `root` and `parent`. A loaded model has
    the sizes that llama-server and vLLM show, too, and says what it can be asked for. What it takes
    is known by its files before, as far as they say it.
    """
    status, adapter = model.status, model.adapter
    described: dict[str, object] = {
        "id": model.id,
        "object": "model",
        "created": status.created,
        "owned_by": OWNER,
        "root": model.id if adapter is None else adapter.path,
        "parent": None if adapter is None else status.name,
        "aliases": list(model.aliases),
        "tags": list(status.tags),
        "starters": list(status.starters if adapter is None else ()),
        "status": status_object(status),
    }
    modalities = status.modalities if card is None else modalities_of(card)
    if modalities is not None:
        described["architecture"] = {
            "input_modalities": list(modalities),
            "output_modalities": ["text"],
        }
    weights = card.weights if card is not None and card.weights else status.weights
    if weights is not None:
        described["weights"] = weights_object(weights)
        if weights.makes_vectors:
            described["tasks"] = [ModelTask.EMBED.value]  # a loaded model says more below
    if card is None:
        return described
    context = card.context_length
    meta: dict[str, object] = {
        "n_vocab": card.vocab_size,
        "n_ctx": context,
        "n_ctx_train": context,
        **(weights_meta(weights) if weights is not None else {}),
    }
    if card.answers.embedding_size:
        meta["n_embd"] = card.answers.embedding_size
    tasks = tasks_of(card)
    return {**described, "max_model_len": context, "tasks": tasks, "meta": meta}


def weights_object(weights: WeightsForm) -> dict[str, object]:
    """Returns the form of a model's weights, as lists of models and /props say it."""
    return {
        "format": weights.format,
        "type": weights.type,
        "bits": round(weights.bits, 2),
        "n_params": weights.n_weights,
        "family": weights.family,
    }


def weights_meta(weights: WeightsForm) -> dict[str, object]:
    """Returns what llama-server says of a model's files, as far as it is known."""
    trained = {"n_ctx_train": weights.context_length} if weights.context_length else {}
    vocab = {"vocab_type": weights.vocab_type} if weights.vocab_type else {}
    sizes = {"n_params": weights.n_weights, "size": weights.n_bytes, "ftype": weights.type}
    return {**trained, **vocab, **sizes}


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
