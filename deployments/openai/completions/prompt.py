"""The prompts of a completion request: of text, of ids, or of a prefix and a suffix."""

from collections.abc import Sequence

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import check_fits, check_ids
from deployments.openai.completions.schema import CompletionRequest
from deployments.text.chat.prompt import Prompt
from deployments.text.infill import infill_ids
from deployments.text.tokens.tokenizer import TextTokenizer


def completion_prompts(
    request: CompletionRequest, card: ModelCard, tokenizer: TextTokenizer
) -> list[Prompt]:
    """Returns the prompts in the order of the request. Raises Refused."""
    structure = request.structure
    grammar = "" if structure is None else structure.write()
    param = "" if structure is None else structure.param
    for prompt in request.prompts:
        if not isinstance(prompt, str):
            check_fits(len(prompt), card, "prompt")
            check_ids(prompt, card, "prompt")
    if request.token_data is not None:
        check_fits(len(request.token_data), card, "nvext.token_data")
        check_ids(request.token_data, card, "nvext.token_data")
        text = _text(request.prompts[0], tokenizer)
        return [Prompt(ids=request.token_data, text=text, grammar=grammar, grammar_param=param)]
    return [
        Prompt(
            ids=_ids(prompt, request, card, tokenizer),
            text=_text(prompt, tokenizer),
            grammar=grammar,
            grammar_param=param,
        )
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
        return tokenizer.encode(text, framed, limit=card.context_length)
    ids = infill_ids(tokenizer, text, request.suffix, limit=card.context_length)
    if ids is None:
        message = (
            f"`suffix` is not supported by the model {card.name!r}: it was not trained to infill"
        )
        raise refused(message, "suffix")
    return ids


def _text(prompt: str | list[int], tokenizer: TextTokenizer) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
