"""POST /tokenize, /detokenize and /apply-template: a model's tokenizer and template.

The first two are vLLM's paths, too: /tokenize knows its forms by their fields, and /detokenize
answers both.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Self

from pydantic import Field, RootModel, model_validator

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import check_ids
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.http.schema import LongItems, ModelName, Strict, TokenId
from deployments.ingress.http.validation import parse
from deployments.ingress.routes.service import Answering, UnaryOperation, recalls_nothing
from deployments.llama.completion.prompts import mixed_ids
from deployments.llama.completion.schema import MAX_TEXTS, given_fields, texts_in
from deployments.llama.openai_chat import parse_chat
from deployments.llama.server.vllm_tokenizer import (
    MAX_CHARACTERS,
    TokenizeChat,
    TokenizePrompt,
    tokenize_as_vllm,
)
from deployments.media.prompt_media import PromptMedia
from deployments.openai.chat.prompt import chat_prompt
from deployments.openai.chat.schema import ChatRequest, parse_chat_as
from deployments.text.tokens.control_tokens import unguarded
from deployments.text.tokens.tokenizer import TextTokenizer


class TokenizeRequest(Strict):
    model: ModelName = None
    content: str | LongItems[str | TokenId]
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False

    @property
    def is_heavy(self) -> bool:
        return False  # what is long is in the body

    @property
    def parts(self) -> Sequence[str | int]:
        return [self.content] if isinstance(self.content, str) else self.content

    @model_validator(mode="after")
    def _is_not_too_long(self) -> Self:
        if sum(len(part) if isinstance(part, str) else 1 for part in self.parts) > MAX_CHARACTERS:
            message = f"`content` must have at most {MAX_CHARACTERS} characters and ids"
            raise refused(message, "content")
        if isinstance(self.content, list) and texts_in(self.content) > MAX_TEXTS:
            raise refused(f"`content` must have at most {MAX_TEXTS} texts", "content")
        return self


AnyTokenize = TokenizeRequest | TokenizePrompt | TokenizeChat


class TokenizeBody(RootModel[TokenizeRequest | TokenizePrompt | TokenizeChat]):
    """llama-server's form, or one of vLLM's."""


class DetokenizeRequest(Strict):
    model: ModelName = None
    tokens: Annotated[LongItems[TokenId], Field(max_length=1 << 20)]

    @property
    def is_heavy(self) -> bool:
        return False


def parse_tokenize(body: object) -> TokenizeRequest | TokenizePrompt | TokenizeChat:
    fields = body if isinstance(body, dict) else {}
    if "content" not in fields and "messages" in fields:
        return parse_chat_as(TokenizeChat, body)
    if "content" not in fields and "prompt" in fields:
        return parse(TokenizePrompt, given_fields(body))
    return parse(TokenizeRequest, given_fields(body))


def parse_detokenize(body: object) -> DetokenizeRequest:
    return parse(DetokenizeRequest, given_fields(body))


async def tokenize_recalled(
    context: RequestContext, asked: AnyTokenize, card: ModelCard
) -> Answering[AnyTokenize]:
    sources = asked.sources if isinstance(asked, TokenizeChat) else ()
    return partial(tokenize, await context.read_media(sources, card))


def tokenize(
    media: PromptMedia, request: AnyTokenize, card: ModelCard, tokenizer: TextTokenizer
) -> object:
    if not isinstance(request, TokenizeRequest):
        return tokenize_as_vllm(request, card, tokenizer, media)
    encode = tokenizer.encode if request.parse_special else tokenizer.encode_literally
    ids = mixed_ids(request.parts, encode, request.add_special)
    check_ids(ids, card, "content")
    if not request.with_pieces:
        return {"tokens": ids}
    return {
        "tokens": [
            {"id": token_id, "piece": piece(tokenizer.token_bytes(token_id))} for token_id in ids
        ]
    }


def piece(raw: bytes) -> str | list[int]:
    """The text of a token, or its bytes if it is a part of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def detokenize(request: DetokenizeRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
    check_ids(request.tokens, card, "tokens")
    text = tokenizer.decode(request.tokens, skip_special_tokens=False)
    return {"content": text, "prompt": text}


async def apply_template(
    context: RequestContext, asked: ChatRequest, card: ModelCard
) -> Answering[ChatRequest]:
    media = await context.read_media(asked.sources, card)

    def answer(request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
        return {"prompt": unguarded(chat_prompt(request, card, tokenizer, media).text)}

    return answer


TOKENIZE = UnaryOperation(
    name="tokenize",
    path="/tokenize",
    body=TokenizeBody,
    parse=parse_tokenize,
    answer=tokenize_recalled,
)
DETOKENIZE = UnaryOperation(
    name="detokenize",
    path="/detokenize",
    body=DetokenizeRequest,
    parse=parse_detokenize,
    answer=recalls_nothing(detokenize),
)
APPLY_TEMPLATE = UnaryOperation(
    name="apply_template",
    path="/apply-template",
    body=ChatRequest,
    parse=parse_chat,
    answer=apply_template,
)
