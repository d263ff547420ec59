"""POST /tokenize in llama-server's form and in vLLM's two, told apart by their fields."""

from functools import partial

from pydantic import RootModel

from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.request_context import RequestContext
from deployments.ingress.http.validation import parse
from deployments.ingress.routes.service import Answering, UnaryOperation
from deployments.llama.completion.schema import given_fields
from deployments.llama.server.tokenize import TokenizeRequest, parse_tokenize
from deployments.llama.server.tokenize import tokenize as tokenize_as_llama_server
from deployments.media.prompt_media import PromptMedia
from deployments.openai.chat.schema import parse_chat_as
from deployments.openai.root_path.tokenizer import TokenizeChat, TokenizePrompt, tokenize_as_vllm
from deployments.text.tokens.tokenizer import TextTokenizer

AnyTokenize = TokenizeRequest | TokenizePrompt | TokenizeChat


class TokenizeBody(RootModel[TokenizeRequest | TokenizePrompt | TokenizeChat]):
    """llama-server's form, or one of vLLM's."""


def parse_any(body: object) -> TokenizeRequest | TokenizePrompt | TokenizeChat:
    fields = body if isinstance(body, dict) else {}
    if "content" not in fields and "messages" in fields:
        return parse_chat_as(TokenizeChat, body)
    if "content" not in fields and "prompt" in fields:
        return parse(TokenizePrompt, given_fields(body))
    return parse_tokenize(body)


async def recalled(
    context: RequestContext, asked: AnyTokenize, card: ModelCard
) -> Answering[AnyTokenize]:
    sources = asked.sources if isinstance(asked, TokenizeChat) else ()
    return partial(tokenize, await context.read_media(sources, card))


def tokenize(
    media: PromptMedia, request: AnyTokenize, card: ModelCard, tokenizer: TextTokenizer
) -> object:
    if isinstance(request, TokenizeRequest):
        return tokenize_as_llama_server(request, card, tokenizer)
    return tokenize_as_vllm(request, card, tokenizer, media)


TOKENIZE = UnaryOperation(
    name="tokenize", path="/tokenize", body=TokenizeBody, parse=parse_any, answer=recalled
)
