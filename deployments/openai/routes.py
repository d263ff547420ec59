"""The OpenAI protocol: its routes with full paths, and its ASGI application."""

from dataclasses import replace

from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.http.app import protocol_app
from deployments.ingress.http.openapi import Documentation
from deployments.ingress.metrics import Metrics
from deployments.ingress.routes.health import health_route
from deployments.ingress.routes.model_management import management_routes
from deployments.ingress.routes.models import model_routes
from deployments.ingress.routes.service import Operation, Service
from deployments.ingress.routes.unsupported import unsupported_routes
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.ingress.streams.routes import stream_routes
from deployments.openai.adapters import adapter_routes
from deployments.openai.audio.routes import audio_routes
from deployments.openai.chat.builder import OpenAIResponseBuilder
from deployments.openai.chat.input_tokens import chat_input_tokens
from deployments.openai.chat.reasoning_control import reasoning_control_route
from deployments.openai.chat.schema import ChatRequest, parse_chat
from deployments.openai.completions.builder import CompletionsResponseBuilder
from deployments.openai.completions.schema import CompletionRequest, parse_completion
from deployments.openai.conversations.routes import conversation_routes
from deployments.openai.pooled import (
    CLASSIFY,
    DECIDE,
    EMBEDDINGS,
    POOLING,
    RERANK,
    SCORE,
    SYSTEM_ONE,
)
from deployments.openai.responses.database_store import DatabaseStore
from deployments.openai.responses.routes import responses_routes
from deployments.openai.responses.store import MemoryStore

CHAT = Operation(
    name="chat_completions",
    path="/v1/chat/completions",
    body=ChatRequest,
    parse=parse_chat,
    builder=lambda context: OpenAIResponseBuilder(
        context.headers, context.read_media, context.reserve
    ),
)
COMPLETIONS = Operation(
    name="completions",
    path="/v1/completions",
    body=CompletionRequest,
    parse=parse_completion,
    builder=lambda context: CompletionsResponseBuilder(context.headers, context.reserve),
)

UNSUPPORTED = {
    "/v1/audio/speech": "audio output",
    "/v1/images/edits": "images",
    "/v1/images/generations": "images",
    "/v1/images/variations": "images",
    "/v1/moderations": "moderation",
}

DOCUMENTATION = Documentation(title="OpenAI API", path="/v1")
PUBLIC = frozenset({"/v1/health"})


def routes(
    cluster: Cluster,
    metrics: Metrics,
    settings: IngressSettings = DEFAULTS,
    streams: ResumableStreams | None = None,
    store: DatabaseStore | None = None,
) -> list[Route]:
    streams = streams or ResumableStreams()
    service = Service(engine=cluster, metrics=metrics, settings=settings, streams=streams)
    return [
        service.route(CHAT),
        service.route(COMPLETIONS),
        reasoning_control_route(cluster, settings),
        service.unary_route(chat_input_tokens()),
        *responses_routes(service, store or MemoryStore()),
        *conversation_routes(service, store),
        *stream_routes(streams, settings),
        *management_routes(cluster, settings, "/v1/models"),
        *model_routes(cluster),
        *adapter_routes(cluster, settings),
        health_route(cluster, "/v1/health"),
        *pooled_routes(service),
        *audio_routes(service),
        *unsupported_routes(UNSUPPORTED),
    ]


def pooled_routes(service: Service) -> list[Route]:
    return [
        service.route(EMBEDDINGS),
        service.route(POOLING),
        service.route(RERANK),
        service.route(replace(RERANK, path="/v1/reranking")),
        service.route(SCORE),
        service.route(CLASSIFY),
        service.route(DECIDE),
        service.route(SYSTEM_ONE),
    ]


def app(
    cluster: Cluster,
    metrics: Metrics,
    settings: IngressSettings = DEFAULTS,
    streams: ResumableStreams | None = None,
    store: DatabaseStore | None = None,
) -> ASGIApp:
    """Makes the app of OpenAI's API.

    Without a `store` responses are kept in memory, and conversations are not served.
    """
    served = routes(cluster, metrics, settings, streams, store)
    return protocol_app(served, openai_envelope, settings, public=PUBLIC, documented=DOCUMENTATION)
