"""Describes a loaded model to the processes that tokenize for it."""

import sys
import time
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from jinja2 import TemplateSyntaxError
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import SamplingParams
from deployments.contract.speech_rules import SpeechRules
from deployments.contract.weights_form import WeightsForm
from deployments.engine.core import EngineCore
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.validation import invalid_sampling

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # that some editors begin files with
SUGGESTED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")  # by a model's files


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that the model's files name as an end of a sequence. Raises UnsupportedModelError
    for what is no token's number."""
    end_ids: set[int] = set()
    for source in (generation_config(model), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        listed = ids if isinstance(ids, list | tuple) else [] if ids is None else [ids]
        end_ids.update(_token_id(entry) for entry in listed)
    # Others never come, and have no logit that could be banned.
    n_tokens = getattr(model.config.get_text_config(decoder=True), "vocab_size", None)
    return frozenset(token_id for token_id in end_ids if 0 <= token_id < (n_tokens or sys.maxsize))


def _token_id(found: object) -> int:
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(found, str) and found.isdecimal():
        return int(found)
    raise UnsupportedModelError(f"eos_token_id of its files is {found!r:.50}, no token's number")


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
    weights: WeightsForm | None = None,
) -> ModelCard:
    """The card of a model.

    sampling: the values for fields that a request does not set.
    fingerprint: of the weights. It is part of the version, so that a sequence that other weights
        have begun is never continued with these.
    parses_special: whether messages may spell control tokens.
    unseen_media: as the settings'.
    weights: in which form its files have them; None: it is not known.
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
        saves_slots=core.saves_slots,
        answers=core.outputs.kinds,
        media=core.media,
        speech=speech,
        weights=weights,
    )
    version = blake2b(repr((card, fingerprint)).encode(), digest_size=8).hexdigest()
    return replace(card, version=version, created=int(time.time()))


def generation_config(model: PreTrainedModel) -> GenerationConfig | None:
    """Returns the generation config of a model. None: it generates nothing."""
    found: GenerationConfig | None = getattr(model, "generation_config", None)
    return found


def chat_templates(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, str | None]:
    """The template for any conversation, and the template for tools if the tokenizer has one.

    Raises UnsupportedModelError for one that is no text or has a syntax error.
    """
    templates = tokenizer.chat_template
    if not isinstance(templates, dict):
        return _template(templates), None
    default = templates.get("default") or next(iter(templates.values()), None)
    return _template(default), _template(templates.get("tool_use"))


def _template(found: object) -> str | None:
    """Returns a template; None for an empty one, which would leave out all messages."""
    if not isinstance(found, str | None):
        raise UnsupportedModelError(f"chat_template of its files is {found!r:.50}, and no text")
    template = (found or "").removeprefix(BYTE_ORDER_MARK)
    try:
        render_jinja_template([], chat_template=template)  # compiles it
    except TemplateSyntaxError as error:
        raise UnsupportedModelError(
            f"chat_template of its files has a syntax error in line {error.lineno}: {error.message}"
        ) from error
    return template or None


def default_sampling(config: GenerationConfig | None) -> SamplingParams:
    """The sampling parameters that the model's files suggest. Others have their neutral value.

    Raises UnsupportedModelError for a value that no request may have either.
    """
    found = {name: getattr(config, name, None) for name in SUGGESTED}
    numbers: dict[str, Any] = {
        name: _number(name, value) for name, value in found.items() if value is not None
    }
    if numbers.get("top_k") == -1:  # as some files say that it is off
        del numbers["top_k"]
    sampling = SamplingParams(**numbers)
    for name, message in invalid_sampling(sampling):
        raise UnsupportedModelError(
            f"{name} of its generation_config.json is {found.get(name)!r:.50}: {message}"
        )
    return sampling


def _number(name: str, found: object) -> float:
    is_whole = isinstance(found, int) or (isinstance(found, float) and found.is_integer())
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise UnsupportedModelError(
            f"{name} of its generation_config.json is {found!r:.50}, and no number"
        )
    if name == "top_k":
        if not is_whole or found < -1:
            raise UnsupportedModelError(
                f"top_k of its generation_config.json is {found}, and no whole number from 0 on"
            )
        return int(found)
    return found
