"""GET /models: lists the models in Ollama's form and in OpenAI's at once."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.routes.model_management import TAG, reload_if_asked
from deployments.ingress.routes.model_status import status_object
from deployments.openai.models import model_objects
from deployments.wire import ModelStatus

SOURCES = {"argument": "argument", "preset": "preset", "folder": "models_dir"}


def model_routes(cluster: Cluster) -> list[Route]:
    async def list_models(request: Request) -> Response:
        await reload_if_asked(cluster, request)
        statuses = await cluster.statuses()
        described = await model_objects(cluster, statuses)
        return JSONResponse(
            {
                "models": [_ollama(status) for status in statuses],
                "object": "list",
                "data": [_openai(*one) for one in zip(statuses, described, strict=True)],
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


def _openai(status: ModelStatus, described: dict[str, object]) -> object:
    return {
        **described,
        "aliases": [status.name, *status.aliases],
        "status": {**status_object(status), "preset": status.preset},
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "source": SOURCES[status.source],
        "can_remove": False,
    }
