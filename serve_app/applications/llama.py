"""The application of the root path: Manta's own endpoints and llama-server's, and OpenAI's without
/v1, as llama-server's clients call them.
"""

from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.error_bodies import llama_envelope
from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.http.app import protocol_app
from deployments.ingress.http.openapi import Documentation
from deployments.ingress.metrics import Metrics
from deployments.ingress.routes.service import Service
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.llama.json_bodies import JsonBodies
from deployments.llama.routes import routes as llama_routes
from deployments.llama.tools.settings import ToolSettings
from deployments.openai.responses.database_store import store_at
from deployments.openai.responses.store import MemoryStore, ResponseStore
from deployments.openai.root_path.routes import root_path_routes
from deployments.store.database import NO_STORE
from serve_app.applications.tokenize import TOKENIZE

DOCUMENTATION = Documentation(title="Server API")
PUBLIC = frozenset({"/", "/health"})


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


def app(
    cluster: Cluster,
    metrics: Metrics,
    settings: IngressSettings = DEFAULTS,
    tools: ToolSettings | None = None,
    streams: ResumableStreams | None = None,
    store: ResponseStore | None = None,
) -> ASGIApp:
    """Returns the application.

    Built-in tools are off without `tools`. Responses are in memory without a `store`.
    """
    streams = streams or ResumableStreams()
    service = Service(engine=cluster, metrics=metrics, settings=settings, streams=streams)
    served: list[Route] = [
        *llama_routes(cluster, service, streams, tools),
        *root_path_routes(cluster, service, store or MemoryStore()),
        service.unary_route(TOKENIZE),
    ]
    answering = protocol_app(
        served, llama_envelope, settings, public=PUBLIC, documented=DOCUMENTATION
    )
    return JsonBodies(answering)
