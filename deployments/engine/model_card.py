"""Describes a loaded model to the processes that tokenize for it."""

import time
from dataclasses import replace
from hashlib import blake2b

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from deployments.engine.core import EngineCore
from deployments.speech_rules import SpeechRules
from deployments.wire import ModelCard, SamplingParams


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that the model's files name as an end of a sequence."""
    end_ids: set[int] = set()
    for source in (generation_config(model), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        end_ids.update([ids] if isinstance(ids, int) else ids or [])
    return frozenset(end_ids)


def make_card(
    name: str,
    core: EngineCore,
    tokenizer: PreTrainedTokenizerBase,
    dialect: str,
    sampling: SamplingParams,
    fingerprint: str,
    speech: SpeechRules | None = None,
    parses_special: bool = False,
    unseen_media: str | None = None,
) -> ModelCard:
    """The card of a model.

    sampling: the values for fields that a request does not set.
    fingerprint: of the weights. It is part of the version, so that a sequence that other weights
        have begun is never continued with these.
    parses_special: whether messages may spell control tokens.
    unseen_media: as the settings'.
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
        parses_special=parses_special,
        unseen_media=unseen_media,
        keeps_states=core.cache.states is not None,
        answers=core.outputs.kinds,
        media=core.media,
        speech=speech,
    )
    version = blake2b(repr((card, fingerprint)).encode(), digest_size=8).hexdigest()
    return replace(card, version=version, created=int(time.time()))


def generation_config(model: PreTrainedModel) -> GenerationConfig | None:
    """None: the model generates nothing."""
    found: GenerationConfig | None = getattr(model, "generation_config", None)
    return found


def chat_templates(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, str | None]:
    """The template for any conversation, and the template for tools if the tokenizer has one."""
    templates = tokenizer.chat_template
    if not isinstance(templates, dict):
        return templates, None
    default = templates.get("default") or next(iter(templates.values()), None)
    return default, templates.get("tool_use")


def default_sampling(config: GenerationConfig | None) -> SamplingParams:
    """The sampling parameters that the model's files suggest. Others have their neutral value."""
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
