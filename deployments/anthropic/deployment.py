"""The ingress deployment of `/v1/messages`: the Anthropic protocol."""

from ray import serve
from starlette.types import ASGIApp

from deployments.anthropic.routes import app
from deployments.draining import DRAIN_CHECK_S, SOON
from deployments.ingress.deployment import ProtocolIngress
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings


@serve.deployment(
    name="anthropic",
    max_ongoing_requests=10_000,
    graceful_shutdown_wait_loop_s=DRAIN_CHECK_S,
    ray_actor_options={"num_cpus": 0, "runtime_env": SOON},
)
@serve.ingress()
class AnthropicIngress(ProtocolIngress):
    def app(self, fleet: Fleet, metrics: Metrics, settings: IngressSettings) -> ASGIApp:
        return app(fleet, metrics, settings)
