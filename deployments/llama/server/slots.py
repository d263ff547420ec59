"""GET /slots: shows running requests as slots. Actions on slots are refused."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.ingress.fleet.cluster import Cluster, inspect_model
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.routes.model_management import switch
from deployments.llama.server.replicas import replicas_of

ACTIONS = ("save", "restore", "erase")


def slot_routes(cluster: Cluster) -> list[Route]:
    async def list_slots(request: Request) -> Response:
        wants_idle = switch(request, "fail_on_no_slot")
        model, card = await inspect_model(cluster, request.query_params.get("model"))
        replicas = await replicas_of(cluster, model)
        busy = [
            slot < stats["active_requests"]
            for stats in replicas.stats
            for slot in range(replicas.slots_each)
        ]
        if wants_idle and all(busy):
            raise Refused.of_kind(ErrorKind.OVERLOADED, "no slot available")
        same = {"n_ctx": card.context_length, "speculative": replicas.speculates}
        slots = [{"id": slot, **same, "is_processing": now} for slot, now in enumerate(busy)]
        return JSONResponse(slots)

    return [
        DocumentedRoute(
            "/slots",
            list_slots,
            methods=["GET"],
            name="list_slots",
            tag="Server",
            query=["model", "fail_on_no_slot"],
        ),
        Route("/slots/{id}", act, methods=["POST"]),
    ]


async def act(request: Request) -> Response:
    number = request.path_params["id"]
    if not (number.isascii() and number.isdecimal()):
        raise refused("Invalid slot ID", "id")
    if request.query_params.get("action") not in ACTIONS:
        raise refused(f"Invalid action: `action` must be one of {', '.join(ACTIONS)}", "action")
    message = "This server does not support slots actions: prefixes are cached for all requests"
    raise Refused.of_kind(ErrorKind.NOT_SUPPORTED, message, "action")
