"""The health endpoint: whether requests would be answered."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import Refused
from deployments.contract.model_status import DEMO_SOURCE, ModelState, ModelStatus
from deployments.ingress.fleet.cluster import UP_STATES, Cluster
from deployments.ingress.http.access_log import note_probe

ROUTER_TIMEOUT_S = 1.0  # health checks do not wait long
HEALTHY = {"status": "ok", "model_loaded": True}
UNLOADED = {"status": "ok", "model_loaded": False}  # a request or an operator loads it
UNLOADED_STATES = {ModelState.UNLOADED, ModelState.UNLOADING}


def health_route(cluster: Cluster, path: str) -> Route:
    async def health(request: Request) -> Response:
        """200 while some model answers, or could be loaded: without autoload by an operator."""
        note_probe(request.scope)
        try:
            statuses = await cluster.statuses(ROUTER_TIMEOUT_S)
        except Refused as refusal:
            if await cluster.is_serving():
                return JSONResponse(HEALTHY)
            return _unhealthy("error", refusal.error.message)
        states = {status.state for status in statuses}
        if states & UP_STATES:
            return JSONResponse(HEALTHY)
        if any(_loads_on_request(model) for model in statuses if model.source != DEMO_SOURCE):
            return JSONResponse(UNLOADED)
        status = "loading" if ModelState.LOADING in states else "error"
        return _unhealthy(status, "; ".join(_describe(model) for model in statuses))

    return Route(path, health)


def _loads_on_request(status: ModelStatus) -> bool:
    """A model that failed is tried again by the next request, which has to get through."""
    failed = status.state is ModelState.FAILED and not status.will_retry
    return failed or status.state in UNLOADED_STATES


def _unhealthy(status: str, message: str) -> Response:
    body = {"status": status, "model_loaded": False, "message": message}
    return JSONResponse(body, 503, headers={"retry-after": "1"})


def _describe(status: ModelStatus) -> str:
    return f"{status.name}: {status.state}" + (f", {status.message}" if status.message else "")
