"""GET /models: the models in two shapes at once, Ollama's and OpenAI's."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.ingress.cluster import Cluster, card_if_up
from deployments.ingress.management import TAG, reload_if_asked
from deployments.ingress.model_status import status_object
from deployments.ingress.openapi import DocumentedRoute
from deployments.openai.models import model_object
from deployments.wire import ModelCard, ModelStatus

SOURCES = {"argument": "argument", "preset": "preset", "folder": "models_dir"}


def model_routes(cluster: Cluster) -> list[Route]:
    async def list_models(request: Request) -> Response:
        await reload_if_asked(cluster, request)
        statuses = await cluster.statuses()
        cards = await asyncio.gather(*(card_if_up(cluster, status) for status in statuses))
        return JSONResponse(
            {
                "models": [_ollama(status) for status in statuses],
                "object": "list",
                "data": [_openai(*one) for one in zip(statuses, cards, strict=True)],
            }
        )

    return [
        DocumentedRoute(
            "/models", list_models, methods=["GET"], name="list_models", tag=TAG, query=["reload"]
        )
    ]


def _ollama(status: ModelStatus) -> object:
    details = {
        "parent_model": "",
        "format": "safetensors",
        "family": "",
        "families": [""],
        "parameter_size": "",
        "quantization_level": "",
    }
    return {
        "name": status.name,
        "model": status.name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": list(status.tags) or [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": details,
    }


def _openai(status: ModelStatus, card: ModelCard | None) -> object:
    told = model_object(status)
    told["aliases"] = [status.name, *status.aliases]
    told["status"] = {**status_object(status), "preset": status.preset}
    told |= {
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "source": SOURCES[status.source],
        "can_remove": False,
    }
    return told if card is None else {**told, "meta": _meta(card)}


def _meta(card: ModelCard) -> object:
    return {
        "n_vocab": card.vocab_size,
        "n_ctx": card.context_length,
        "n_ctx_train": card.context_length,
    }
