"""Counts the tokens of a request's prompt, without generating."""

from deployments.ingress.generation.plan import ContextError
from deployments.ingress.generation.response_builder import ApiRequestT, ResponseBuilder
from deployments.ingress.routes.service import Question
from deployments.openai.chat.builder import OpenAIResponseBuilder
from deployments.openai.chat.schema import ChatRequest, parse_chat
from deployments.openai.responses.builder import ResponsesBuilder
from deployments.openai.responses.schema import ResponsesRequest, parse_response_request
from deployments.openai.responses.store import ResponseStore
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard, Refused


def chat_input_tokens() -> Question[ChatRequest]:
    def answer(request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
        return count_prompt_tokens(OpenAIResponseBuilder(), request, card, tokenizer)

    return Question(
        name="chat_input_tokens",
        path="/v1/chat/completions/input_tokens",
        body=ChatRequest,
        parse=parse_chat,
        answer=answer,
        heavy=lambda request: request.is_heavy,
    )


def responses_input_tokens(store: ResponseStore) -> Question[ResponsesRequest]:
    def answer(request: ResponsesRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
        return count_prompt_tokens(ResponsesBuilder(store), request, card, tokenizer)

    return Question(
        name="responses_input_tokens",
        path="/v1/responses/input_tokens",
        body=ResponsesRequest,
        parse=parse_response_request,
        answer=answer,
        heavy=lambda request: request.is_heavy,
    )


def count_prompt_tokens(
    builder: ResponseBuilder[ApiRequestT],
    request: ApiRequestT,
    card: ModelCard,
    tokenizer: TextTokenizer,
) -> object:
    """Prepares the request and counts. A prompt that exceeds the context is counted, too."""
    try:
        tokens = len(builder.prepare(request, card, tokenizer)[0].request.prompt_ids)
    except Refused as refusal:
        if not isinstance(refusal.error, ContextError):
            raise
        tokens = refusal.error.n_prompt_tokens
    return {"object": "response.input_tokens", "input_tokens": tokens}
