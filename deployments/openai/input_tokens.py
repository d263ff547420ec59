"""Counts the tokens of a request's prompt, without generating."""

from deployments.contract.errors import Refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import ContextError
from deployments.ingress.generation.response_builder import ApiRequestT, ResponseBuilder
from deployments.text.tokens.tokenizer import TextTokenizer


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
