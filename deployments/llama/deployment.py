"""The ingress deployment of the root path: Manta's own endpoints and llama-server's."""

from ray import serve
from starlette.types import ASGIApp

from deployments.draining import DRAIN_CHECK_S, SOON
from deployments.ingress.deployment import ProtocolIngress
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.llama.routes import app
from deployments.llama.tools.settings import ToolSettings


@serve.deployment(
    name="llama",
    max_ongoing_requests=10_000,
    graceful_shutdown_wait_loop_s=DRAIN_CHECK_S,
    ray_actor_options={"num_cpus": 0, "runtime_env": SOON},
)
@serve.ingress()
class LlamaIngress(ProtocolIngress):
    def __init__(self, settings: IngressSettings, tools: ToolSettings | None = None) -> None:
        super().__init__(settings)
        self._tools = tools

    def app(self, fleet: Fleet, metrics: Metrics, settings: IngressSettings) -> ASGIApp:
        return app(fleet, metrics, settings, self._tools)
