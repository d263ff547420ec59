"""OpenAI's chat completions with llama-server's differences, and the prompts of their templates."""

from typing import ClassVar, Self

from pydantic import model_validator

from deployments.contract.errors import RequestError, refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.error_bodies import llama_error_event
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.routes.service import Answering, UnaryOperation
from deployments.openai.chat.builder import OpenAIResponseBuilder
from deployments.openai.chat.prompt import chat_prompt
from deployments.openai.chat.schema import AssistantMessage, ChatRequest, parse_chat_as
from deployments.openai.fields.common import TopLogprobs
from deployments.text.tokens.control_tokens import unguarded
from deployments.text.tokens.tokenizer import TextTokenizer


class LlamaChatRequest(ChatRequest):
    """`n_probs` is the native name of `logprobs` with `top_logprobs`."""

    n_probs: TopLogprobs | None = None

    @model_validator(mode="after")
    def _join_n_probs(self) -> Self:
        if not self.n_probs:
            return self
        if self.logprobs is False or self.top_logprobs not in (None, self.n_probs):
            message = "`n_probs` must equal `top_logprobs`, and cannot go with `logprobs`: false"
            raise refused(message, "n_probs")
        self.logprobs, self.top_logprobs = True, self.n_probs
        return self


class LlamaChatBuilder(OpenAIResponseBuilder):
    like_llama_server: ClassVar[bool] = True

    def format_stream_error(self, error: RequestError) -> bytes:
        return llama_error_event(error)


def parse_chat(body: object) -> LlamaChatRequest:
    """The answer continues a last message of the assistant, unless a field says otherwise."""
    request = parse_chat_as(LlamaChatRequest, body)
    last = request.messages[-1]
    is_begun = isinstance(last, AssistantMessage) and bool(last.content) and not last.tool_calls
    said = request.add_generation_prompt, request.continue_final_message
    if is_begun and said == (None, None) and not request.raw:
        request.continue_final_message = True
    return request


async def apply_template(
    context: RequestContext, asked: ChatRequest, card: ModelCard
) -> Answering[ChatRequest]:
    media = await context.read_media(asked.sources, card)

    def answer(request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
        return {"prompt": unguarded(chat_prompt(request, card, tokenizer, media).text)}

    return answer


APPLY_TEMPLATE = UnaryOperation(
    name="apply_template",
    path="/apply-template",
    body=ChatRequest,
    parse=parse_chat,
    answer=apply_template,
)
