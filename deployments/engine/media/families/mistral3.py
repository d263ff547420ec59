"""Mistral 3: Pixtral's tower, whose images keep their proportions."""

from collections.abc import Mapping

import torch
from torch import Tensor

from deployments.engine.media.families.family import (
    Inputs,
    MediaFamily,
    Module,
    image_features,
)
from deployments.media.families.described import Described

_vectors = image_features("pixel_values", "image_sizes")


def image_vectors(base: Module, inputs: Inputs) -> Tensor:
    """transformers takes one vector alone for none, so that an image of one is computed twice."""
    square = base.vision_tower.patch_size * base.config.spatial_merge_size
    if int((inputs["image_sizes"] // square).prod()) > 1:
        return _vectors(base, inputs)
    return _vectors(base, {name: torch.cat([value, value]) for name, value in inputs.items()})[:1]


def options(processor: Described) -> Mapping[str, object]:
    return {"patch_size": processor.patch_size * processor.spatial_merge_size}


MISTRAL3 = MediaFamily("Mistral3ForConditionalGeneration", image_vectors, options)
