"""GET /slots: a running request is a slot; what llama-server can do to a slot is refused."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.ingress.errors import refused
from deployments.llama.cluster import Cluster, replicas_of
from deployments.wire import ErrorKind, Refused, RequestError

ACTIONS = ("save", "restore", "erase")
SWITCH = {None: False, "": False, "0": False, "false": False, "1": True, "true": True}


def slot_routes(cluster: Cluster) -> list[Route]:
    async def list_slots(request: Request) -> Response:
        wants_idle = _switch(request, "fail_on_no_slot")
        card = await cluster.card(request.query_params.get("model"))
        replicas, slots_each = await replicas_of(cluster, card.name)
        busy = [slot < stats["active_requests"] for stats in replicas for slot in range(slots_each)]
        if wants_idle and all(busy):
            raise Refused(RequestError(ErrorKind.OVERLOADED, "no slot available"))
        return JSONResponse([slot_object(*one, card.context_length) for one in enumerate(busy)])

    return [
        Route("/slots", list_slots, methods=["GET"]),
        Route("/slots/{id}", act, methods=["POST"]),
    ]


def slot_object(number: int, is_processing: bool, context_length: int) -> object:
    return {
        "id": number,
        "n_ctx": context_length,
        "speculative": False,
        "is_processing": is_processing,
    }


async def act(request: Request) -> Response:
    number = request.path_params["id"]
    if not (number.isascii() and number.isdecimal()):
        raise refused("Invalid slot ID", "id")
    if request.query_params.get("action") not in ACTIONS:
        raise refused(f"Invalid action: `action` must be one of {', '.join(ACTIONS)}", "action")
    message = "This server does not support slots actions: prefixes are cached for all requests"
    raise Refused(RequestError(ErrorKind.NOT_SUPPORTED, message, "action"))


def _switch(request: Request, name: str) -> bool:
    given = request.query_params.get(name)
    if given not in SWITCH:
        raise refused(f"`{name}` must be 0 or 1", name)
    return SWITCH[given]
