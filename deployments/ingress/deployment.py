"""What the deployments of all protocols share: an application over the fleet, and its metrics."""

from abc import ABC, abstractmethod
from dataclasses import replace

from ray import serve
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from starlette.types import ASGIApp

from deployments.ingress.fleet import Fleet
from deployments.ingress.http import OneRequestId
from deployments.ingress.metrics import Family, Metrics
from deployments.ingress.settings import IngressSettings

PROBE_S = 1.0


class ProtocolIngress(ABC):
    """Lives in a process free of torch."""

    def __init__(self, settings: IngressSettings) -> None:
        self._settings = replace(settings, probe_s=PROBE_S if RAY_SERVE_ENABLE_HA_PROXY else None)
        self._metrics = Metrics()

    @abstractmethod
    def app(self, fleet: Fleet, metrics: Metrics, settings: IngressSettings) -> ASGIApp: ...

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return OneRequestId(self.app(Fleet(), self._metrics, self._settings))

    async def samples(self) -> tuple[dict[str, str], list[Family]]:
        """Its metrics, and the labels that tell them from other replicas'."""
        replica = serve.get_replica_context().replica_id.unique_id
        return {"replica": replica}, self._metrics.samples()
