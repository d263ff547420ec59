"""The ingress of the root path: the server's own endpoints and llama-server's."""

from ray import serve
from starlette.types import ASGIApp

from deployments.ingress.fleet import Fleet
from deployments.ingress.http import protocol_app
from deployments.llama.routes import ServerRoutes, envelope


@serve.deployment(name="llama", max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0})
@serve.ingress()
class LlamaIngress:
    def __serve_build_asgi_app__(self) -> ASGIApp:
        return protocol_app(ServerRoutes(Fleet()).routes(), envelope)
