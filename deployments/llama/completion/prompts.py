"""The ids of llama-server's prompts: of text, of ids, or of both mixed."""

from collections.abc import Callable, Sequence
from functools import partial

from deployments.ingress.generation.plan import check_fits, check_ids
from deployments.llama.completion.schema import LlamaCompletionRequest, OnePrompt, PromptObject
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard, refused


def prompt_ids(
    request: LlamaCompletionRequest, card: ModelCard, tokenizer: TextTokenizer
) -> list[list[int]]:
    return [_ids(prompt, card, tokenizer) for prompt in request.prompts]


def _ids(prompt: OnePrompt, card: ModelCard, tokenizer: TextTokenizer) -> list[int]:
    text = prompt.prompt_string if isinstance(prompt, PromptObject) else prompt
    parts = [text] if isinstance(text, str) else text
    if isinstance(parts, list):
        check_fits(sum(isinstance(part, int) for part in parts), card, "prompt")
    encode = partial(tokenizer.encode, limit=card.context_length)
    ids = mixed_ids(parts, encode, add_special_tokens=True)
    if not ids:
        raise refused("`prompt` must not be empty", "prompt")
    check_ids(ids, card, "prompt")
    return ids


def mixed_ids(
    parts: Sequence[str | int],
    encode: Callable[[str, bool], list[int]],
    add_special_tokens: bool,
) -> list[int]:
    """Special tokens are added only to a text that is the first part."""
    ids: list[int] = []
    for place, part in enumerate(parts):
        ids += [part] if isinstance(part, int) else encode(part, add_special_tokens and place == 0)
    return ids
