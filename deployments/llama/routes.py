"""llama-server's own routes, with full paths."""

from dataclasses import replace

from starlette.routing import Route

from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.routes.model_management import management_routes
from deployments.ingress.routes.service import Operation, Service
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.ingress.streams.routes import stream_routes
from deployments.llama.completion.builder import CompletionBuilder
from deployments.llama.completion.infill import InfillRequest, infill_prompts, parse_infill
from deployments.llama.completion.prompts import completion_prompts
from deployments.llama.completion.schema import LlamaCompletionRequest, parse_completion
from deployments.llama.server.adapters import adapter_routes
from deployments.llama.server.fleet_feed import fleet_routes
from deployments.llama.server.models import model_routes
from deployments.llama.server.props import props_routes
from deployments.llama.server.routes import ServerRoutes
from deployments.llama.server.slots import slot_routes
from deployments.llama.server.tokenize import DETOKENIZE
from deployments.llama.server.unsupported import refused_route
from deployments.llama.tools.routes import tool_routes
from deployments.llama.tools.settings import ToolSettings
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


def routes(
    cluster: Cluster,
    service: Service,
    streams: ResumableStreams,
    tools: ToolSettings | None = None,
) -> list[Route]:
    """Built-in tools are off without `tools`."""
    settings = service.settings
    return [
        *ServerRoutes(cluster).routes(),
        *fleet_routes(cluster, settings),
        service.route(COMPLETION),
        service.route(replace(COMPLETION, path="/completions")),
        service.route(INFILL),
        service.unary_route(DETOKENIZE),
        *props_routes(cluster, service.tokenizers),
        *slot_routes(cluster, settings),
        *management_routes(cluster, settings),
        *model_routes(cluster, settings),
        *stream_routes(streams, settings),
        *stream_routes(streams, settings, prefix=""),  # /v1 may be another application's
        *tool_routes(tools, settings),
        *adapter_routes(cluster, settings),
        refused_route(),
    ]
