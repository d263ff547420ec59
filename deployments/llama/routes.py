"""llama-server's protocol: its routes with full paths, and the application of the root path."""

from dataclasses import replace

from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.ingress.error_bodies import llama_envelope, llama_error_event
from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.http.app import protocol_app
from deployments.ingress.http.openapi import Documentation
from deployments.ingress.metrics import Metrics
from deployments.ingress.routes.model_management import management_routes
from deployments.ingress.routes.service import Operation, Service
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.ingress.streams.routes import stream_routes
from deployments.llama.completion.builder import CompletionBuilder
from deployments.llama.completion.infill import InfillRequest, infill_prompts, parse_infill
from deployments.llama.completion.prompts import completion_prompts
from deployments.llama.completion.schema import LlamaCompletionRequest, parse_completion
from deployments.llama.json_bodies import JsonBodies
from deployments.llama.openai_chat import ChatBuilder, LlamaChatRequest, parse_chat
from deployments.llama.pooled import pooled_routes
from deployments.llama.server.adapters import adapter_routes
from deployments.llama.server.fleet_feed import fleet_routes
from deployments.llama.server.models import model_routes
from deployments.llama.server.props import props_routes
from deployments.llama.server.routes import ServerRoutes
from deployments.llama.server.slots import slot_routes
from deployments.llama.server.tokenize import APPLY_TEMPLATE, DETOKENIZE, TOKENIZE
from deployments.llama.server.unsupported import refused_route
from deployments.llama.server.vllm_tokenizer import tokenizer_routes
from deployments.llama.tools.routes import tool_routes
from deployments.llama.tools.settings import ToolSettings
from deployments.openai.audio.routes import transcription_route
from deployments.openai.chat.input_tokens import chat_input_tokens
from deployments.openai.chat.reasoning_control import reasoning_control_route
from deployments.openai.responses.encryption import ThoughtCipher
from deployments.openai.responses.input_tokens import responses_input_tokens
from deployments.openai.responses.routes import responses
from deployments.openai.responses.store import MemoryStore, ResponseStore
from deployments.openai.routes import CHAT
from deployments.text.infill import infill_ends

COMPLETION = Operation(
    name="completion",
    path="/completion",
    body=LlamaCompletionRequest,
    parse=parse_completion,
    builder=lambda context: CompletionBuilder(completion_prompts, read_media=context.read_media),
)
INFILL = Operation(
    name="infill",
    path="/infill",
    body=InfillRequest,
    parse=parse_infill,
    builder=lambda context: CompletionBuilder(infill_prompts, infill_ends),
)
DOCUMENTATION = Documentation(title="Server API")
PUBLIC = frozenset({"/", "/health"})


def routes(
    cluster: Cluster,
    metrics: Metrics,
    settings: IngressSettings = DEFAULTS,
    tools: ToolSettings | None = None,
    streams: ResumableStreams | None = None,
    store: ResponseStore | None = None,
) -> list[Route]:
    streams = streams or ResumableStreams()
    service = Service(engine=cluster, metrics=metrics, settings=settings, streams=streams)
    return [
        *ServerRoutes(cluster).routes(),
        *fleet_routes(cluster, settings),
        service.route(COMPLETION),
        service.route(replace(COMPLETION, path="/completions")),
        service.route(INFILL),
        *openai_aliases(service, store or MemoryStore()),
        reasoning_control_route(cluster, settings, "/chat/completions/control"),
        service.unary_route(TOKENIZE),
        service.unary_route(DETOKENIZE),
        service.unary_route(APPLY_TEMPLATE),
        *props_routes(cluster, service.tokenizers),
        *tokenizer_routes(cluster, service.tokenizers),
        *slot_routes(cluster),
        *management_routes(cluster, settings),
        *model_routes(cluster, settings),
        *stream_routes(streams, settings),
        *stream_routes(streams, settings, prefix=""),  # /v1 may be another application's
        *pooled_routes(service),
        *tool_routes(tools, settings),
        *adapter_routes(cluster, settings),
        refused_route(),
    ]


def openai_aliases(service: Service, store: ResponseStore) -> list[Route]:
    """llama-server has these without /v1, too."""
    cipher = ThoughtCipher(service.settings.encryption_key)
    chat = Operation(
        name=CHAT.name,
        path="/chat/completions",
        body=LlamaChatRequest,
        parse=parse_chat,
        builder=lambda context: ChatBuilder(context.headers, context.read_media, context.reserve),
    )
    chat_count, count = chat_input_tokens(), responses_input_tokens(store, cipher)
    return [
        transcription_route(service, "/audio/transcriptions", llama_error_event),
        service.route(chat),
        service.route(replace(responses(store, cipher), path="/responses")),
        service.unary_route(
            replace(chat_count, path="/chat/completions/input_tokens", parse=parse_chat)
        ),
        service.unary_route(replace(count, path="/responses/input_tokens")),
    ]


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
    served = routes(cluster, metrics, settings, tools, streams, store)
    answering = protocol_app(
        served, llama_envelope, settings, public=PUBLIC, documented=DOCUMENTATION
    )
    return JsonBodies(answering)
