"""OpenAI's endpoints at the root path, where llama-server has them without /v1, and the others that
take its chats or answer as it does.
"""

from dataclasses import replace

from starlette.routing import Route

from deployments.ingress.error_bodies import llama_error_event
from deployments.ingress.fleet.cluster import Cluster
from deployments.ingress.routes.service import Operation, Service
from deployments.openai.audio.routes import transcription_route
from deployments.openai.chat.input_tokens import chat_input_tokens
from deployments.openai.chat.reasoning_control import reasoning_control_route
from deployments.openai.responses.encryption import ThoughtCipher
from deployments.openai.responses.input_tokens import responses_input_tokens
from deployments.openai.responses.routes import responses
from deployments.openai.responses.store import ResponseStore
from deployments.openai.root_path.chat import (
    APPLY_TEMPLATE,
    LlamaChatBuilder,
    LlamaChatRequest,
    parse_chat,
)
from deployments.openai.root_path.pooled import pooled_routes
from deployments.openai.root_path.tokenizer import tokenizer_routes
from deployments.openai.routes import CHAT

LLAMA_CHAT = Operation(
    name=CHAT.name,
    path="/chat/completions",
    body=LlamaChatRequest,
    parse=parse_chat,
    builder=lambda context: LlamaChatBuilder(context.headers, context.read_media, context.reserve),
)


def root_path_routes(cluster: Cluster, service: Service, store: ResponseStore) -> list[Route]:
    """Errors in streams are llama-server's, as those of its application are."""
    cipher = ThoughtCipher(service.settings.encryption_key)
    chat_count, count = chat_input_tokens(), responses_input_tokens(store, cipher)
    return [
        transcription_route(service, "/audio/transcriptions", llama_error_event),
        service.route(LLAMA_CHAT),
        service.route(replace(responses(store, cipher), path="/responses")),
        service.unary_route(
            replace(chat_count, path="/chat/completions/input_tokens", parse=parse_chat)
        ),
        service.unary_route(replace(count, path="/responses/input_tokens")),
        reasoning_control_route(cluster, service.settings, "/chat/completions/control"),
        service.unary_route(APPLY_TEMPLATE),
        *tokenizer_routes(cluster, service.tokenizers),
        *pooled_routes(service),
    ]
