"""The prompts of a completion as ids: text, ids as they are, or what an infill model is shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.ingress.generation.plan import check_ids
from deployments.ingress.http.errors import refused
from deployments.openai.completions.schema import CompletionRequest
from deployments.text.infill import infill_ids
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    text: str
    ids: Sequence[int]


def completion_prompts(
    request: CompletionRequest, card: ModelCard, tokenizer: TextTokenizer
) -> list[CompletionPrompt]:
    """In the order of the request. Raises Refused."""
    for prompt in request.prompts:
        if not isinstance(prompt, str):
            check_ids(prompt, card, "prompt")
    if request.token_data is not None:
        check_ids(request.token_data, card, "nvext.token_data")
        return [CompletionPrompt(_text(request.prompts[0], tokenizer), request.token_data)]
    return [
        CompletionPrompt(_text(prompt, tokenizer), _ids(prompt, request, card, tokenizer))
        for prompt in request.prompts
    ]


def _ids(
    prompt: str | list[int], request: CompletionRequest, card: ModelCard, tokenizer: TextTokenizer
) -> Sequence[int]:
    if isinstance(prompt, str):
        return _encoded(prompt, request, card, tokenizer)
    return prompt


def _encoded(
    text: str, request: CompletionRequest, card: ModelCard, tokenizer: TextTokenizer
) -> Sequence[int]:
    if not request.suffix:
        framed = request.add_special_tokens is not False
        return tokenizer.encode(text, framed, most=card.context_length)
    ids = infill_ids(tokenizer, text, request.suffix, most=card.context_length)
    if ids is None:
        message = f"`suffix` needs a model that was trained to infill, which {card.name!r} is not"
        raise refused(message, "suffix")
    return ids


def _text(prompt: str | list[int], tokenizer: TextTokenizer) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
