"""The routes of `/v1/messages` as an ASGI application."""

from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.anthropic.messages_builder import AnthropicResponseBuilder, count_tokens
from deployments.anthropic.messages_schema import (
    CountRequest,
    MessagesRequest,
    parse_count,
    parse_messages,
)
from deployments.anthropic.request_ids import RequestIds
from deployments.ingress.error_bodies import anthropic_envelope
from deployments.ingress.generation.engine_client import Engine
from deployments.ingress.http.app import REQUEST_ID, protocol_app
from deployments.ingress.http.openapi import Documentation
from deployments.ingress.metrics import Metrics
from deployments.ingress.routes.service import (
    Operation,
    Service,
    UnaryOperation,
)
from deployments.ingress.settings import DEFAULTS, IngressSettings

MESSAGES = Operation(
    name="messages",
    path="/v1/messages",
    body=MessagesRequest,
    parse=parse_messages,
    builder=lambda context: AnthropicResponseBuilder(
        context.headers[REQUEST_ID], context.read_media
    ),
)
COUNT = UnaryOperation(
    name="count_tokens",
    path="/v1/messages/count_tokens",
    body=CountRequest,
    parse=parse_count,
    answer=count_tokens,
)
DOCUMENTATION = Documentation(title="Anthropic Messages API", path="/v1/messages")


def routes(engine: Engine, metrics: Metrics, settings: IngressSettings = DEFAULTS) -> list[Route]:
    service = Service(engine=engine, metrics=metrics, settings=settings)
    return [service.route(MESSAGES), service.unary_route(COUNT)]


def app(engine: Engine, metrics: Metrics, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return RequestIds(
        protocol_app(
            routes(engine, metrics, settings),
            anthropic_envelope,
            settings,
            documented=DOCUMENTATION,
        )
    )
