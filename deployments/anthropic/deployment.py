"""The ingress deployment of `/v1/messages`: the Anthropic protocol."""

from starlette.types import ASGIApp

from deployments.anthropic.routes import app
from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams


@ingress_deployment("anthropic")
class AnthropicIngress(ProtocolIngress):
    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp:
        return app(fleet, metrics, settings)
