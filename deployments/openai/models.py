"""The models an engine serves, as GET /v1/models lists them."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.ingress.handler import Engine
from deployments.ingress.sse import encode
from deployments.wire import ErrorKind, Refused, RequestError

OWNER = "manta"


def model_routes(engine: Engine) -> list[Route]:
    async def list_models(request: Request) -> Response:
        listed = [model_object(name, created) for name, created in await engine.models()]
        return _json({"object": "list", "data": listed})

    async def retrieve_model(request: Request) -> Response:
        name = request.path_params["id"]
        for known, created in await engine.models():
            if known == name:
                return _json(model_object(known, created))
        message = f"The model {name!r} does not exist"
        raise Refused(RequestError(ErrorKind.MODEL_NOT_FOUND, message, "model"))

    return [
        Route("/v1/models", list_models, methods=["GET"]),
        Route("/v1/models/{id:path}", retrieve_model, methods=["GET"]),
    ]


def model_object(name: str, created: int) -> object:
    return {"id": name, "object": "model", "created": created, "owned_by": OWNER}


def _json(value: object) -> Response:
    return Response(encode(value), media_type="application/json")
