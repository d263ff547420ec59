"""Lists the models in Ollama's form and in OpenAI's at once; downloads and deletes models."""

from collections.abc import Mapping
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import refused
from deployments.ingress.fleet.cluster import Cluster, ServedModel, served_models
from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.validation import parse
from deployments.ingress.routes.model_management import TAG, reload_if_asked
from deployments.ingress.routes.model_status import status_object
from deployments.ingress.routes.models import model_objects
from deployments.ingress.settings import IngressSettings

SOURCES = {
    "argument": "argument",
    "demo": "preset",
    "preset": "preset",
    "folder": "models_dir",
    "download": "cache",  # llama-server's word for what it has downloaded
}
# Ollama's words for what models can do, and llama-server's for ranks.
CAPABILITIES = {"generate": "completion", "embed": "embedding", "score": "rerank"}


class HubModel(Strict):
    """`model` is OWNER/NAME, with a tag for a GGUF file: OWNER/NAME:Q4_K_M. `revision` is a branch,
    a tag or a commit."""

    model: str
    revision: str | None = None


def model_routes(cluster: Cluster, settings: IngressSettings) -> list[Route]:
    async def list_models(request: Request) -> Response:
        await reload_if_asked(cluster, request)
        models = served_models(await cluster.statuses())
        described = await model_objects(cluster, models)
        return JSONResponse(
            {
                "models": [_ollama(*pair) for pair in zip(models, described, strict=True)],
                "object": "list",
                "data": [_openai(*pair) for pair in zip(models, described, strict=True)],
            }
        )

    async def download(request: Request) -> Response:
        asked = parse(HubModel, parse_json(await read_command(request, settings)))
        await cluster.download(asked.model, asked.revision)
        return JSONResponse({"success": True})

    async def delete(request: Request) -> Response:
        model = request.query_params.get("model")
        if not model:
            raise refused("`model` is missing", "model")
        await cluster.delete(model)
        return JSONResponse({"success": True})

    return [
        DocumentedRoute(
            "/models", list_models, methods=["GET"], name="list_models", tag=TAG, query=["reload"]
        ),
        DocumentedRoute(
            "/models", download, methods=["POST"], name="download_model", tag=TAG, body=HubModel
        ),
        DocumentedRoute(
            "/models", delete, methods=["DELETE"], name="delete_model", tag=TAG, needed=["model"]
        ),
    ]


def _ollama(model: ServedModel, described: Mapping[str, object]) -> object:
    weights = cast(Mapping[str, Any], described.get("weights", {}))
    family = weights.get("family", "")
    details = {
        "parent_model": "" if model.adapter is None else model.status.name,
        "format": weights.get("format", "safetensors"),
        "family": family,
        "families": [family],
        "parameter_size": _in_words(weights.get("n_params", 0)),
        "quantization_level": weights.get("type", ""),
    }
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": list(model.status.tags) or [""],
        "capabilities": _capabilities(described),
        "parameters": "",
        "details": details,
    }


def _in_words(n_weights: int) -> str:
    """Returns a size as Ollama writes it: 268.1M, 8.0B."""
    if n_weights == 0:
        return ""
    unit, size = ("B", 1e9) if n_weights >= 1e9 else ("M", 1e6)
    return f"{n_weights / size:.1f}{unit}"


def _capabilities(described: Mapping[str, object]) -> list[str]:
    """llama-server calls all that reads more than text multimodal. A model that is not loaded says
    of no task that it has it, and is taken for a generator."""
    tasks = cast(list[str], described.get("tasks", ["generate"]))
    inputs = cast(Mapping[str, list[str]], described.get("architecture") or {})
    reads_more = len(inputs.get("input_modalities", ())) > 1
    found = [name for task, name in CAPABILITIES.items() if task in tasks]
    return [*found, *(["multimodal"] if reads_more else [])]


def _openai(model: ServedModel, described: Mapping[str, object]) -> object:
    status, is_adapter = model.status, model.adapter is not None
    return {
        **described,
        "aliases": [model.id, *model.aliases],
        "status": {**status_object(status), "preset": status.preset},
        "source": SOURCES[status.source],
        "can_remove": status.source == "download" and not is_adapter,
    }
