"""The ingress deployment of `/v1`: the OpenAI protocol."""

from starlette.types import ASGIApp

from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.openai.routes import app


@ingress_deployment("openai")
class OpenAIIngress(ProtocolIngress):
    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp:
        return app(fleet, metrics, settings, streams)
