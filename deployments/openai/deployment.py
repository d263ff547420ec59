"""The ingress deployment of `/v1`: the OpenAI protocol."""

from starlette.types import ASGIApp

from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.openai.responses.database_store import DatabaseStore
from deployments.openai.routes import app


@ingress_deployment("openai")
class OpenAIIngress(ProtocolIngress):
    def __init__(self, settings: IngressSettings, store: str | None = None) -> None:
        """store: the URL of a database; responses are kept in memory without one."""
        super().__init__(settings)
        self._store = store

    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp:
        store = None if self._store is None else DatabaseStore(self._store)
        return app(fleet, metrics, settings, streams, store)
