"""The ingress deployment of the root path: Manta's own endpoints and llama-server's."""

from starlette.types import ASGIApp

from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.llama.routes import app
from deployments.llama.tools.settings import ToolSettings
from deployments.openai.responses.database_store import store_at
from deployments.store.database import NO_STORE


@ingress_deployment("llama")
class LlamaIngress(ProtocolIngress):
    def __init__(
        self,
        settings: IngressSettings,
        tools: ToolSettings | None = None,
        store: str | None = NO_STORE,
    ) -> None:
        """store: as `store_at` takes it."""
        super().__init__(settings)
        self._tools = tools
        self._store = store

    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp:
        store = store_at(self._store)
        return app(fleet, metrics, settings, self._tools, streams, store)
