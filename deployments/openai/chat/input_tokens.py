"""Counts the tokens of a chat request's prompt."""

from deployments.ingress.routes.service import TokenizerOperation, recalls_nothing
from deployments.openai.chat.builder import OpenAIResponseBuilder
from deployments.openai.chat.schema import ChatRequest, parse_chat
from deployments.openai.input_tokens import count_prompt_tokens
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard


def chat_input_tokens() -> TokenizerOperation[ChatRequest]:
    def answer(request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
        return count_prompt_tokens(OpenAIResponseBuilder(), request, card, tokenizer)

    return TokenizerOperation(
        name="chat_input_tokens",
        path="/v1/chat/completions/input_tokens",
        body=ChatRequest,
        parse=parse_chat,
        answer=recalls_nothing(answer),
    )
