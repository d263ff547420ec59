"""The ingress of `/v1`: the OpenAI protocol on the fleet, in a process free of torch."""

from ray import serve
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from starlette.types import ASGIApp

from deployments.ingress.fleet import Fleet
from deployments.ingress.metrics import Family, Metrics
from deployments.openai.routes import app

PROBE_S = 1.0


@serve.deployment(name="openai", max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0})
@serve.ingress()
class OpenAIIngress:
    def __init__(self, keep_alive_s: float, max_body_bytes: int) -> None:
        self._keep_alive_s = keep_alive_s
        self._max_body_bytes = max_body_bytes
        self._metrics = Metrics()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return app(
            Fleet(),
            self._metrics,
            keep_alive_s=self._keep_alive_s,
            probe_s=PROBE_S if RAY_SERVE_ENABLE_HA_PROXY else None,
            body_limit=self._max_body_bytes,
        )

    async def samples(self) -> tuple[dict[str, str], list[Family]]:
        """Its metrics, and the labels that tell them from other replicas'."""
        replica = serve.get_replica_context().replica_id.unique_id
        return {"replica": replica}, self._metrics.samples()
