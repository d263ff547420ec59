"""Splits models that see: into a language model, which is served as any other one, and a tower."""

import copy
import logging
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoProcessor, PretrainedConfig, PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.adapters.module_names import remember_names
from deployments.engine.media.encoder import MEDIA_ENCODER, MediaEncoder
from deployments.engine.media.families.registry import can_see, media_family_of
from deployments.media.families.described import UnknownProcessorError
from deployments.media.families.registry import rules_of
from deployments.media_rules import MediaRules

log = logging.getLogger(__name__)


def load_processor(path: str, config: PretrainedConfig) -> Any:
    """The processor of a model that sees. None for other models, and where it can't be loaded: the
    model reads text only then."""
    if not can_see(config):
        return None
    try:
        return AutoProcessor.from_pretrained(path, trust_remote_code=False, backend="pil")
    except Exception as error:  # it is of any model's files
        log.warning("%s reads text only: its processor can't be loaded: %s", path, error)
        return None


def as_language_model(model: PreTrainedModel, processor: Any) -> PreTrainedModel:
    """The language model of one that sees, which has a `MediaEncoder` of all else where its
    processor is known. Another model is returned as it is.

    Raises UnsupportedModelError for a language model that transformers does not have by itself.
    """
    family = media_family_of(model)
    if family is None:
        return model
    base = model.model
    language = getattr(base, family.language)
    decoder = _with_head(language, model)
    # As transformers names them now, and as files of before have them.
    remember_names(decoder, (f"model.{family.language}.", f"{family.language}.model."))
    setattr(base, family.language, None)
    rules = None if processor is None else _rules(processor)
    if rules is not None:
        setattr(decoder, MEDIA_ENCODER, MediaEncoder(base, family, processor, rules))
    return decoder


def _with_head(language: PreTrainedModel, model: PreTrainedModel) -> PreTrainedModel:
    config = language.config
    with torch.device("meta"):
        decoder: PreTrainedModel = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    setattr(decoder, decoder.base_model_prefix, language)
    decoder.set_output_embeddings(model.get_output_embeddings())
    decoder.config = config
    decoder.generation_config = model.generation_config
    if any(weight.is_meta for weight in decoder.state_dict().values()):
        raise UnsupportedModelError(f"{type(decoder).__name__} has weights besides its layers")
    return decoder.eval()


def _rules(processor: Any) -> MediaRules | None:
    """Of images alone: sounds are not encoded yet."""
    try:
        found = rules_of(processor)
    except UnknownProcessorError as error:
        log.warning("the model reads text only: %s", error)
        return None
    return None if found is None or found.images is None else MediaRules(images=found.images)
