"""Splits models that see: into a language model, which is served as any other one, and a tower."""

import copy
import logging
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn import Module
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from deployments.contract.media_rules import MediaRules
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.model_tasks import has_vocabulary
from deployments.engine.media.encoder import MediaEncoder
from deployments.engine.media.encoders import MediaFamily, media_family_of
from deployments.media.rules import UnknownProcessorError, rules_of

log = logging.getLogger(__name__)

# Fields of a config that are of no use where the layers are replaced.
OF_LAYERS = frozenset({"num_hidden_layers", "layer_types", "rope_parameters", "max_window_layers"})


def split_media(model: PreTrainedModel, processor: Any) -> LoadedModel:
    """Splits a model that sees into its language model and a `MediaEncoder` of all else, which is
    there where the processor is known. Other models stay whole.

    Raises UnsupportedModelError for a language model that transformers does not have by itself.
    """
    family = media_family_of(model)
    if family is None:
        return LoadedModel(model)
    base = getattr(model, "model", model)
    language = getattr(base, family.language)
    decoder = _with_head(language, model, family)
    base.register_module(family.language, None)
    if family.embedding is not None:
        _embed_by_towers(decoder, base, family.embedding)
    rules = None if processor is None else _rules(processor, family)
    return LoadedModel(
        decoder,
        media=None if rules is None else MediaEncoder(base, family, processor, rules),
        # As transformers names its modules now, and as older files have them.
        outer_names=(f"model.{family.language}.", f"{family.language}.model."),
    )


def _embed_by_towers(
    decoder: PreTrainedModel, base: Any, embedding: Callable[[Any, Tensor, Tensor], Tensor]
) -> None:
    def embed(_: Module, given: tuple[Tensor], embedded: Tensor) -> Tensor:
        return embedding(base, given[0], embedded)

    decoder.get_input_embeddings().register_forward_hook(embed)


def _with_head(
    language: PreTrainedModel, model: PreTrainedModel, family: MediaFamily
) -> PreTrainedModel:
    config = language.config
    if has_vocabulary(language):
        language.generation_config = model.generation_config
        return language
    with torch.device("meta"):
        decoder = _text_model(copy.deepcopy(config), family)
    decoder.register_module(decoder.base_model_prefix, language)
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
    fields = {name: value for name, value in config.to_dict().items() if name not in OF_LAYERS}
    decoder = text_class(text_class.config_class.from_dict({**fields, "num_hidden_layers": 1}))
    return decoder


def _rules(processor: Any, family: MediaFamily) -> MediaRules | None:
    """Returns the rules of the media that are encoded."""
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
