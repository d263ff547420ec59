"""vLLM's routes that load and unload LoRA adapters, where an operator named a folder for them."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.validation import parse
from deployments.ingress.routes.model_management import TAG
from deployments.ingress.settings import IngressSettings

AdapterName = Annotated[str, Field(min_length=1, max_length=128)]
Done = Callable[[object], Awaitable[str]]  # from a body's JSON to what was done; raises Refused


class LoadAdapter(Strict):
    """`lora_path` starts at the router's `adapters_dir`. `base_model_name` is needed where there
    are several models.
    """

    lora_name: AdapterName
    lora_path: Annotated[str, Field(min_length=1, max_length=4096)]
    base_model_name: Annotated[str, Field(min_length=1)] | None = None
    load_inplace: bool | None = None
    is_3d_lora_weight: Literal[False] | None = None


class UnloadAdapter(Strict):
    """vLLM's `lora_int_id` has no effect there either."""

    lora_name: AdapterName
    lora_int_id: int | None = None


def adapter_routes(cluster: Cluster, settings: IngressSettings) -> list[Route]:
    async def load(body: object) -> str:
        asked = parse(LoadAdapter, body)
        await cluster.load_adapter(
            asked.lora_name, asked.lora_path, asked.base_model_name, bool(asked.load_inplace)
        )
        return f"Success: LoRA adapter '{asked.lora_name}' added successfully."

    async def unload(body: object) -> str:
        asked = parse(UnloadAdapter, body)
        await cluster.unload_adapter(asked.lora_name)
        return f"Success: LoRA adapter '{asked.lora_name}' removed successfully."

    return [
        _route("/v1/load_lora_adapter", load, LoadAdapter, settings),
        _route("/v1/unload_lora_adapter", unload, UnloadAdapter, settings),
    ]


def _route(path: str, act: Done, body: type[Strict], settings: IngressSettings) -> Route:
    async def endpoint(request: Request) -> Response:
        return PlainTextResponse(await act(parse_json(await read_command(request, settings))))

    return DocumentedRoute(
        path,
        endpoint,
        methods=["POST"],
        name=path.removeprefix("/v1/"),
        tag=TAG,
        body=body,
        media_types=["text/plain"],
    )
