"""GET and POST /lora-adapters: a model's adapters, and the scales that requests get by default."""

from pydantic import RootModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import refused
from deployments.contract.served_adapters import ServedAdapter
from deployments.ingress.fleet.cluster import Cluster, find_model
from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.validation import parse
from deployments.ingress.llamacpp.field_types import MAX_LORA_SCALES, LoraScale
from deployments.ingress.routes.model_management import TAG
from deployments.ingress.settings import IngressSettings

PATH = "/lora-adapters"


class DefaultScales(RootModel[list[LoraScale]]):
    """An adapter that is left out gets the scale 0."""


def adapter_routes(cluster: Cluster, settings: IngressSettings) -> list[Route]:
    async def list_adapters(request: Request) -> Response:
        model = find_model(await cluster.statuses(), request.query_params.get("model"))
        return JSONResponse([_listed(adapter) for adapter in model.adapters.adapters])

    async def scale_adapters(request: Request) -> Response:
        scales = _scales(parse_json(await read_command(request, settings)))
        model = find_model(await cluster.statuses(), request.query_params.get("model"))
        await cluster.scale_adapters(model.name, scales)
        return JSONResponse({"success": True})

    return [
        DocumentedRoute(
            PATH, list_adapters, methods=["GET"], name="list_adapters", tag=TAG, query=["model"]
        ),
        DocumentedRoute(
            PATH,
            scale_adapters,
            methods=["POST"],
            name="scale_adapters",
            tag=TAG,
            query=["model"],
            body=DefaultScales,
        ),
    ]


def _scales(value: object) -> list[tuple[int, float]]:
    """Raises Refused."""
    if not isinstance(value, list):
        raise refused("Request body must be an array")
    if len(value) > MAX_LORA_SCALES:
        raise refused(f"The body must have at most {MAX_LORA_SCALES} scales")
    scales: dict[int, float] = {}
    for index, entry in enumerate(value):
        path = f"[{index}]"
        if not isinstance(entry, dict):
            raise refused(f"`{path}` must be an object", path)
        scale = parse(LoraScale, entry, path)
        if scale.id in scales:
            raise refused(f"`{path}.id`: the adapter {scale.id} has a scale already", f"{path}.id")
        scales[scale.id] = scale.scale
    return list(scales.items())


def _listed(adapter: ServedAdapter) -> object:
    """llama-server's fields, and the name by which `model` chooses the adapter."""
    return {
        "id": adapter.id,
        "path": adapter.path,
        "scale": adapter.default_scale,
        "task_name": "",
        "prompt_prefix": "",
        "name": adapter.name,
    }
