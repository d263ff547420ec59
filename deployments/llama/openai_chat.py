"""OpenAI's chat completions with llama-server's differences, for its routes without /v1."""

from deployments.ingress.http.sse import data, encode
from deployments.llama.error_body import envelope
from deployments.openai.chat import schema as chat_schema
from deployments.openai.chat.builder import OpenAIResponseBuilder
from deployments.openai.chat.schema import AssistantMessage, ChatRequest
from deployments.wire import RequestError


class ChatBuilder(OpenAIResponseBuilder):
    def format_stream_error(self, error: RequestError) -> bytes:
        return error_event(error)


def error_event(error: RequestError) -> bytes:
    """The last event of a stream that fails. No [DONE] follows."""
    _, body = envelope(error, "")
    return data(encode(body))


def parse_chat(body: object) -> ChatRequest:
    """The answer continues a last message of the assistant, unless a field says otherwise."""
    request = chat_schema.parse_chat(body)
    last = request.messages[-1]
    is_begun = isinstance(last, AssistantMessage) and bool(last.content) and not last.tool_calls
    said = request.add_generation_prompt, request.continue_final_message
    if is_begun and said == (None, None) and not request.raw:
        request.continue_final_message = True
    return request
