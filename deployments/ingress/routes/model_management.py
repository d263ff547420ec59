"""Routes that load and unload models, and one that streams their states."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from deployments.contract.errors import refused
from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.http.clients import connection_of
from deployments.ingress.http.openapi import EVENTS, DocumentedRoute
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.sse import EVENT_STREAM
from deployments.ingress.http.validation import parse
from deployments.ingress.routes.status_feed import StatusFeed
from deployments.ingress.settings import IngressSettings

TAG = "Models"
SWITCH_VALUES = {None: False, "": False, "0": False, "false": False, "1": True, "true": True}


class NamedModel(Strict):
    model: str


def management_routes(
    cluster: Cluster, settings: IngressSettings, prefix: str = "/models"
) -> list[Route]:
    """They have to stand before routes with a model's name in the path."""
    feed = StatusFeed(cluster, settings.keep_alive_s)

    async def follow(request: Request) -> Response:
        client = connection_of(request, sees_peers=settings.sees_peers)
        return StreamingResponse(feed.watch(client), headers=EVENT_STREAM.headers)

    return [
        _command_route(f"{prefix}/load", "load_model", cluster.load, settings),
        _command_route(f"{prefix}/unload", "unload_model", cluster.unload, settings),
        DocumentedRoute(
            f"{prefix}/sse",
            follow,
            methods=["GET"],
            name="follow_models",
            tag=TAG,
            media_types=(EVENTS,),
        ),
    ]


def _command_route(
    path: str, name: str, command: Callable[[str], Awaitable[None]], settings: IngressSettings
) -> Route:
    async def endpoint(request: Request) -> Response:
        body = await read_command(request, settings)
        await command(parse(NamedModel, parse_json(body)).model)
        return JSONResponse({"success": True})

    return DocumentedRoute(path, endpoint, methods=["POST"], name=name, tag=TAG, body=NamedModel)


async def reload_if_asked(cluster: Cluster, request: Request) -> None:
    """Reads the sources of a list of models again for `?reload=1`. Raises Refused."""
    if switch(request, "reload"):
        await cluster.reload()


def switch(request: Request, name: str) -> bool:
    """A boolean parameter of the query, False by default. Raises Refused."""
    given = request.query_params.get(name)
    if given not in SWITCH_VALUES:
        raise refused(f"`{name}` must be 0 or 1", name)
    return SWITCH_VALUES[given]
