"""How many tokens a request's prompt has, as its generation would count them."""

import sys
from dataclasses import replace

from deployments.ingress.builder import ApiRequestT, ResponseBuilder
from deployments.ingress.service import Question
from deployments.openai.chat_builder import OpenAIResponseBuilder
from deployments.openai.chat_schema import ChatRequest, parse_chat
from deployments.openai.responses_builder import ResponsesBuilder
from deployments.openai.responses_schema import ResponsesRequest, parse_response_request
from deployments.openai.responses_store import ResponseStore
from deployments.text.tokenizer import TextTokenizer
from deployments.wire import ModelCard


def chat_input_tokens() -> Question[ChatRequest]:
    def answer(request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
        return counted(OpenAIResponseBuilder(), request, boundless(card), tokenizer)

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
        context = card if request.truncation == "auto" else boundless(card)
        return counted(ResponsesBuilder(store), request, context, tokenizer)

    return Question(
        name="responses_input_tokens",
        path="/v1/responses/input_tokens",
        body=ResponsesRequest,
        parse=parse_response_request,
        answer=answer,
        heavy=lambda request: request.is_heavy,
    )


def boundless(card: ModelCard) -> ModelCard:
    """A prompt that does not fit has its number of tokens too."""
    return replace(card, context_length=sys.maxsize)


def counted(
    builder: ResponseBuilder[ApiRequestT],
    request: ApiRequestT,
    card: ModelCard,
    tokenizer: TextTokenizer,
) -> object:
    """The builder makes its prompt and generates nothing."""
    generations = builder.prepare(request, card, tokenizer)
    tokens = len(generations[0].request.prompt_ids)
    return {"object": "response.input_tokens", "input_tokens": tokens}
