"""llama-server's protocol as routes with whole paths, and the application of the root path."""

from dataclasses import replace

from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.ingress.cluster import Cluster
from deployments.ingress.http import protocol_app
from deployments.ingress.management import management_routes
from deployments.ingress.metrics import Metrics
from deployments.ingress.openapi import Documentation
from deployments.ingress.service import Operation, Service
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.ingress.stream_routes import stream_routes
from deployments.ingress.streams import Streams
from deployments.llama.chat import ChatBuilder, parse_chat
from deployments.llama.completion_builder import CompletionBuilder
from deployments.llama.completion_schema import CompletionRequest, parse_completion
from deployments.llama.envelope import envelope
from deployments.llama.infill import InfillRequest, infill_prompts, parse_infill
from deployments.llama.models import model_routes
from deployments.llama.prompts import prompt_ids
from deployments.llama.props import props_routes
from deployments.llama.server_routes import ServerRoutes
from deployments.llama.slots import slot_routes
from deployments.llama.tokens import APPLY_TEMPLATE, DETOKENIZE, TOKENIZE
from deployments.llama.tools.routes import tool_routes
from deployments.llama.tools.settings import ToolSettings
from deployments.llama.unsupported import refused_routes
from deployments.openai.input_tokens import chat_input_tokens, responses_input_tokens
from deployments.openai.responses_routes import responses
from deployments.openai.responses_store import ResponseStore
from deployments.openai.routes import CHAT
from deployments.openai.thought_control import thought_control_route
from deployments.text.infill import infill_ends

COMPLETION = Operation(
    name="completion",
    path="/completion",
    body=CompletionRequest,
    parse=parse_completion,
    builder=lambda headers: CompletionBuilder(prompt_ids),
    heavy=lambda request: request.is_heavy,
)
INFILL = Operation(
    name="infill",
    path="/infill",
    body=InfillRequest,
    parse=parse_infill,
    builder=lambda headers: CompletionBuilder(infill_prompts, infill_ends),
    heavy=lambda request: request.is_heavy,
)
DOCUMENTATION = Documentation(title="Server API")
PUBLIC = frozenset({"/", "/health"})


def routes(
    cluster: Cluster,
    metrics: Metrics,
    settings: IngressSettings = DEFAULTS,
    tools: ToolSettings | None = None,
) -> list[Route]:
    streams = Streams()
    service = Service(engine=cluster, metrics=metrics, settings=settings, streams=streams)
    return [
        *ServerRoutes(cluster).routes(),
        service.route(COMPLETION),
        service.route(replace(COMPLETION, path="/completions")),
        service.route(INFILL),
        *openai_aliases(service),
        thought_control_route(cluster, settings, "/chat/completions/control"),
        service.question(TOKENIZE),
        service.question(DETOKENIZE),
        service.question(APPLY_TEMPLATE),
        *props_routes(cluster, service.tokenizers),
        *slot_routes(cluster),
        *management_routes(cluster, settings),
        *model_routes(cluster),
        *stream_routes(streams, settings),
        *stream_routes(streams, settings, prefix=""),  # /v1 may be another application's
        *tool_routes(tools, settings),
        *refused_routes(settings),
    ]


def openai_aliases(service: Service) -> list[Route]:
    """llama-server has these without /v1 too. Their responses are remembered by themselves."""
    store = ResponseStore()
    chat = replace(CHAT, path="/chat/completions", parse=parse_chat, builder=ChatBuilder)
    chat_count, count = chat_input_tokens(), responses_input_tokens(store)
    return [
        service.route(chat),
        service.route(replace(responses(store), path="/responses")),
        service.question(
            replace(chat_count, path="/chat/completions/input_tokens", parse=parse_chat)
        ),
        service.question(replace(count, path="/responses/input_tokens")),
    ]


def app(
    cluster: Cluster,
    metrics: Metrics,
    settings: IngressSettings = DEFAULTS,
    tools: ToolSettings | None = None,
) -> ASGIApp:
    """Without `tools` the built-in ones are off."""
    served = routes(cluster, metrics, settings, tools)
    return protocol_app(served, envelope, settings, public=PUBLIC, documented=DOCUMENTATION)
