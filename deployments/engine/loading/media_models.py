"""Splits models that see: into a language model, which is served as any other one, and a tower."""

import copy
import logging
from contextlib import suppress
from typing import Any

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    ImageProcessingMixin,
    PretrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.media.encoder import MEDIA_ENCODER, MediaEncoder
from deployments.engine.media.families.family import MediaFamily
from deployments.engine.media.families.registry import media_family_of, takes_media
from deployments.media.families.described import UnknownProcessorError
from deployments.media.families.registry import rules_of
from deployments.media_rules import MediaRules

log = logging.getLogger(__name__)

# Fields of a config that are of no use where the layers are replaced.
OF_LAYERS = frozenset({"num_hidden_layers", "layer_types", "rope_parameters", "max_window_layers"})


def load_processor(path: str, config: PretrainedConfig) -> Any:
    """The processor of a model that sees or hears. None for other models, and where it can't be
    loaded: the model reads text only then."""
    if not takes_media(config):
        return None
    try:
        processor = _without_videos(_processor_class(path, config))
        return processor.from_pretrained(path, trust_remote_code=False, backend="pil")
    except Exception as error:  # it is of any model's files
        log.warning("%s reads text only: its processor can't be loaded: %s", path, error)
        return None


def _processor_class(path: str, config: PretrainedConfig) -> Any:
    """As the model's files name it, or as all models of its type have it."""
    for files in (ProcessorMixin.get_processor_dict, ImageProcessingMixin.get_image_processor_dict):
        with suppress(OSError):
            named, _ = files(path)
            if found := named.get("processor_class"):
                return getattr(transformers, found)
    return getattr(transformers, PROCESSOR_MAPPING_NAMES[config.model_type])


def _without_videos(processor: Any) -> Any:
    """The same class for images alone: what reads videos needs torchvision."""
    parts = [one for one in processor.get_attributes() if one != "video_processor"]
    return type(processor.__name__, (processor,), {"get_attributes": lambda *_: parts})


def as_language_model(model: PreTrainedModel, processor: Any) -> PreTrainedModel:
    """The language model of one that sees, which has a `MediaEncoder` of all else where its
    processor is known. Another model is returned as it is.

    Raises UnsupportedModelError for a language model that transformers does not have by itself.
    """
    family = media_family_of(model)
    if family is None:
        return model
    base = getattr(model, "model", model)
    language = getattr(base, family.language)
    decoder = _with_head(language, model, family)
    setattr(base, family.language, None)
    rules = None if processor is None else _rules(processor, family)
    if rules is not None:
        setattr(decoder, MEDIA_ENCODER, MediaEncoder(base, family, processor, rules))
    return decoder


def _with_head(
    language: PreTrainedModel, model: PreTrainedModel, family: MediaFamily
) -> PreTrainedModel:
    config = language.config
    if type(language).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():  # it has one
        language.generation_config = model.generation_config
        return language
    with torch.device("meta"):
        decoder = _text_model(copy.deepcopy(config), family)
    setattr(decoder, decoder.base_model_prefix, language)
    decoder.set_output_embeddings(model.get_output_embeddings())
    decoder.config = config
    decoder.generation_config = model.generation_config
    if any(weight.is_meta for weight in decoder.state_dict().values()):
        raise UnsupportedModelError(f"{type(decoder).__name__} has weights besides its layers")
    return decoder.eval()


def _text_model(config: PretrainedConfig, family: MediaFamily) -> PreTrainedModel:
    decoder: PreTrainedModel
    if not family.text_class:
        decoder = AutoModelForCausalLM.from_config(config)
        return decoder
    text_class = getattr(transformers, family.text_class)
    fields = {name: one for name, one in config.to_dict().items() if name not in OF_LAYERS}
    decoder = text_class(text_class.config_class.from_dict({**fields, "num_hidden_layers": 1}))
    return decoder


def _rules(processor: Any, family: MediaFamily) -> MediaRules | None:
    """Of what is encoded."""
    try:
        found = rules_of(processor)
    except UnknownProcessorError as error:
        log.warning("the model reads text only: %s", error)
        return None
    if found is None:
        return None
    images = None if family.image_vectors is None else found.images
    audio = None if family.sound_vectors is None else found.audio
    return MediaRules(images=images, audio=audio) if images or audio else None
