"""llama-server's endpoints that are not supported. Each is refused with a message of its own."""

import json

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.routes.unsupported import not_supported, unsupported_routes
from deployments.ingress.settings import IngressSettings
from deployments.wire import refused

UNSUPPORTED = {
    "/audio/transcriptions": "audio input",
}


def refused_routes(settings: IngressSettings) -> list[Route]:
    async def set_adapters(request: Request) -> Response:
        body = await read_command(request, settings)
        scales = parse_json(body)
        if not isinstance(scales, list):
            raise refused("Request body must be an array")
        if scales:
            raise not_supported("LoRA scales: adapters are merged into a model when it is loaded")
        return JSONResponse({"success": True})

    return [
        *unsupported_routes(UNSUPPORTED),
        Route("/lora-adapters", _list_adapters, methods=["GET"]),
        Route("/lora-adapters", set_adapters, methods=["POST"]),
        Route("/cors-proxy", feature_disabled, methods=["GET", "POST"], include_in_schema=False),
    ]


async def _list_adapters(request: Request) -> Response:
    """Always empty: adapters are merged into the model, so they have no scale."""
    return JSONResponse([])


async def feature_disabled(request: Request) -> Response:
    """llama-server's body for this error, which has no code."""
    error = {"message": "this feature is disabled", "type": "feature_disabled"}
    return Response(json.dumps({"error": error}), 403, media_type="application/json")
