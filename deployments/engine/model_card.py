"""Describes a loaded model to those who turn text into its ids."""

import time
from dataclasses import replace
from hashlib import blake2b

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from deployments.engine.core import EngineCore
from deployments.wire import ModelCard, SamplingParams


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that the model's own files name as an end."""
    found: set[int] = set()
    for source in (model.generation_config, model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or [])
    return frozenset(found)


def make_card(
    name: str,
    core: EngineCore,
    tokenizer: PreTrainedTokenizerBase,
    dialect: str,
    sampling: SamplingParams,
    weights: str,
) -> ModelCard:
    """`sampling` is what requests leave open. `weights` is their fingerprint: ids of others are
    never continued with them.
    """
    template, tool_template = chat_templates(tokenizer)
    card = ModelCard(
        name=name,
        version="",
        created=0,
        context_length=core.context_length,
        vocab_size=core.vocab_size,
        page_size=core.cache.shape.page_size,
        tokenizer_json=tokenizer.backend_tokenizer.to_str(),
        chat_template=template,
        tool_template=tool_template,
        special_tokens=tuple(
            (key, str(token))
            for key, token in tokenizer.special_tokens_map.items()
            if not isinstance(token, list)
        ),
        eos_token_ids=tuple(sorted(core.eos_token_ids)),
        sampling=sampling,
        dialect=dialect,
    )
    version = blake2b(repr((card, weights)).encode(), digest_size=8).hexdigest()
    return replace(card, version=version, created=int(time.time()))


def chat_templates(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, str | None]:
    """The one for any conversation, and where there are several the one for tools."""
    found = tokenizer.chat_template
    if not isinstance(found, dict):
        return found, None
    return found.get("default") or next(iter(found.values()), None), found.get("tool_use")


def default_sampling(config: GenerationConfig | None) -> SamplingParams:
    """What the model's makers suggest; where they say nothing, the neutral value."""
    neutral = SamplingParams()
    if config is None:
        return neutral
    temperature = config.temperature
    return SamplingParams(
        temperature=neutral.temperature if temperature is None else temperature,
        top_k=config.top_k or neutral.top_k,
        top_p=config.top_p or neutral.top_p,
        min_p=config.min_p or neutral.min_p,
        repetition_penalty=config.repetition_penalty or neutral.repetition_penalty,
    )
