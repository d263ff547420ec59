"""The ingress deployment of `/v1`: the OpenAI protocol."""

from starlette.types import ASGIApp

from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.openai.responses.database_store import store_at
from deployments.openai.routes import app
from deployments.store.database import NO_STORE


@ingress_deployment("openai")
class OpenAIIngress(ProtocolIngress):
    def __init__(self, settings: IngressSettings, store: str | None = NO_STORE) -> None:
        """store: as `store_at` takes it."""
        super().__init__(settings)
        self._store = store

    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp:
        return app(fleet, metrics, settings, streams, store_at(self._store))
