"""Counts the tokens of a chat request's prompt."""

from functools import partial

from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.routes.service import Answering, UnaryOperation
from deployments.openai.chat.builder import OpenAIResponseBuilder
from deployments.openai.chat.schema import ChatRequest, parse_chat
from deployments.openai.input_tokens import count_prompt_tokens


def chat_input_tokens() -> UnaryOperation[ChatRequest]:
    async def recalled(
        context: RequestContext, asked: ChatRequest, card: ModelCard
    ) -> Answering[ChatRequest]:
        builder = OpenAIResponseBuilder(read_media=context.read_media)
        await builder.recall(asked, card)
        return partial(count_prompt_tokens, builder)

    return UnaryOperation(
        name="chat_input_tokens",
        path="/v1/chat/completions/input_tokens",
        body=ChatRequest,
        parse=parse_chat,
        answer=recalled,
    )
