"""vLLM's forms of /tokenize, and its GET /tokenizer_info."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.fleet.cluster import Cluster, inspect_model
from deployments.ingress.generation.plan import check_fits
from deployments.ingress.http.openapi import DocumentedRoute
from deployments.ingress.http.schema import MAX_TOKENIZED_CHARACTERS, ModelName, Strict, Switch
from deployments.media.prompt_media import PromptMedia
from deployments.openai.chat.prompt import chat_prompt
from deployments.openai.chat.schema import ChatRequest
from deployments.text.tokens.tokenizer import TextTokenizer, TokenizerCache

TOKENIZER_CLASS = "PreTrainedTokenizerFast"  # any tokenizer of a tokenizer.json is one


class TokenizePrompt(Strict):
    """vLLM's form for a text."""

    model: ModelName = None
    prompt: Annotated[str, Field(max_length=MAX_TOKENIZED_CHARACTERS)]
    add_special_tokens: bool = True
    return_token_strs: bool = False

    @property
    def is_heavy(self) -> bool:
        return False  # what is long is in the body


class TokenizeChat(ChatRequest):
    """vLLM's form for a conversation."""

    return_token_strs: Switch = None


def tokenize_as_vllm(
    request: TokenizePrompt | TokenizeChat,
    card: ModelCard,
    tokenizer: TextTokenizer,
    media: PromptMedia,
) -> object:
    """Raises Refused."""
    if isinstance(request, TokenizePrompt):
        ids = [*tokenizer.encode(request.prompt, request.add_special_tokens)]
    else:
        ids = [*_chat_ids(request, card, tokenizer, media)]
    wants_texts = bool(request.return_token_strs)
    return {
        "count": len(ids),
        "max_model_len": card.context_length,
        "tokens": ids,
        "token_strs": [tokenizer.token_name(token_id) for token_id in ids] if wants_texts else None,
    }


def _chat_ids(
    request: TokenizeChat, card: ModelCard, tokenizer: TextTokenizer, media: PromptMedia
) -> Sequence[int]:
    prompt = chat_prompt(request, card, tokenizer, media)
    if media:
        check_fits(len(prompt.ids), card, "messages")
    if len(prompt.ids) < card.context_length:
        return prompt.ids
    if len(prompt.text) > MAX_TOKENIZED_CHARACTERS:
        message = f"`messages` come to a prompt of more than {MAX_TOKENIZED_CHARACTERS} characters"
        raise refused(message, "messages")
    # The ids of a prompt that does not fit are only good to count.
    if request.raw:
        return tokenizer.encode(prompt.text, add_special_tokens=True)
    return tokenizer.encode_hidden(prompt.text)


def tokenizer_routes(cluster: Cluster, tokenizers: TokenizerCache) -> list[Route]:
    async def tokenizer_info(request: Request) -> Response:
        _, card = await inspect_model(cluster, request.query_params.get("model"))
        return JSONResponse(await asyncio.to_thread(lambda: _info(card, tokenizers.get(card))))

    return [
        DocumentedRoute(
            "/tokenizer_info",
            tokenizer_info,
            methods=["GET"],
            name="tokenizer_info",
            tag="Text and tokens",
            query=["model"],
        )
    ]


def _info(card: ModelCard, tokenizer: TextTokenizer) -> object:
    """Returns the fields of the tokenizer, as a tokenizer_config.json has them."""
    return {
        "tokenizer_class": TOKENIZER_CLASS,
        "model_max_length": card.context_length,
        "chat_template": card.chat_template,
        **dict(card.special_tokens),
        "added_tokens_decoder": tokenizer.added_tokens,
    }
