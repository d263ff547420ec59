"""The OpenAI protocol as routes with whole paths, and as an application of its own."""

from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.ingress.body import BODY_LIMIT
from deployments.ingress.handler import KEEP_ALIVE_S, Engine
from deployments.ingress.http import protocol_app
from deployments.ingress.metrics import Metrics
from deployments.ingress.service import Operation, Service
from deployments.openai.chat_builder import OpenAIResponseBuilder
from deployments.openai.chat_schema import parse_chat
from deployments.openai.completions_builder import CompletionsResponseBuilder
from deployments.openai.completions_schema import parse_completion
from deployments.openai.envelope import openai_envelope
from deployments.openai.models import model_routes

CHAT = Operation("chat_completions", "/v1/chat/completions", parse_chat, OpenAIResponseBuilder)
COMPLETIONS = Operation(
    "completions", "/v1/completions", parse_completion, CompletionsResponseBuilder
)


def routes(
    engine: Engine,
    metrics: Metrics,
    *,
    keep_alive_s: float = KEEP_ALIVE_S,
    probe_s: float | None = None,
    body_limit: int = BODY_LIMIT,
) -> list[Route]:
    service = Service(
        engine=engine,
        metrics=metrics,
        keep_alive_s=keep_alive_s,
        probe_s=probe_s,
        body_limit=body_limit,
    )
    return [service.route(CHAT), service.route(COMPLETIONS), *model_routes(engine)]


def app(
    engine: Engine,
    metrics: Metrics,
    *,
    keep_alive_s: float = KEEP_ALIVE_S,
    probe_s: float | None = None,
    body_limit: int = BODY_LIMIT,
) -> ASGIApp:
    listed = routes(
        engine, metrics, keep_alive_s=keep_alive_s, probe_s=probe_s, body_limit=body_limit
    )
    return protocol_app(listed, openai_envelope)
