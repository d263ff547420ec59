"""The ids of llama-server's prompts: of text, of ids, or of both mixed."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import check_fits, check_ids
from deployments.llama.completion.schema import (
    MEDIA_MARKER,
    LlamaCompletionRequest,
    OnePrompt,
    PromptObject,
)
from deployments.media.prompt_media import PromptMedia
from deployments.text.chat.media_parts import expand_text, ids_with_placeholders
from deployments.text.chat.prompt import Prompt
from deployments.text.tokens.tokenizer import TextTokenizer


def completion_prompts(
    request: LlamaCompletionRequest,
    card: ModelCard,
    tokenizer: TextTokenizer,
    media: PromptMedia,
) -> list[Prompt]:
    return [_prompt(prompt, card, tokenizer, media) for prompt in request.prompts]


def _prompt(
    prompt: OnePrompt, card: ModelCard, tokenizer: TextTokenizer, media: PromptMedia
) -> Prompt:
    if not isinstance(prompt, PromptObject) or not prompt.multimodal_data:
        return Prompt(ids=_ids(prompt, card, tokenizer))
    expanded = expand_text(_with_media(prompt, media), media, card.media)
    encode = partial(tokenizer.encode, add_special_tokens=True, limit=card.context_length)
    ids, ranges = ids_with_placeholders(expanded, encode, card, "prompt")
    return Prompt(ids=ids, media=expanded.media, placeholder_ranges=ranges)


def _with_media(prompt: PromptObject, media: PromptMedia) -> str:
    """The text, with what stands for each file in the place of its marker. Raises Refused."""
    texts, sources = prompt.prompt_string.split(MEDIA_MARKER), prompt.sources()
    if len(texts) != len(sources) + 1:
        raise refused(
            f"`prompt.multimodal_data` has {len(sources)} files, and `prompt_string` has "
            f"{len(texts) - 1} times {MEDIA_MARKER}, which stands for one",
            "prompt.multimodal_data",
        )
    marks = [media.text_of(source) for source in sources]
    return "".join(chain.from_iterable(zip(texts, [*marks, ""], strict=True)))


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
    encode: Callable[[str, bool], Sequence[int]],
    add_special_tokens: bool,
) -> list[int]:
    """Special tokens are added only to a text that is the first part."""
    ids: list[int] = []
    for index, part in enumerate(parts):
        ids += [part] if isinstance(part, int) else encode(part, add_special_tokens and index == 0)
    return ids
