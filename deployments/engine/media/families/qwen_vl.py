"""Qwen's VL models: positions by line and column, and layers as those of Qwen's text models.

From Qwen 3 on the first layers add further vectors (deepstack).
"""

import torch
from torch import Tensor

from deployments.engine.media.families.family import (
    Inputs,
    MediaFamily,
    Module,
    image_features,
)

_VECTORS = image_features("pixel_values", "image_grid_thw")


def deepstack_vectors(base: Module, inputs: Inputs) -> Tensor:
    """[ids of the image, hidden * (1 + layers)]"""
    found = base.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    parts = found.pooler_output, *found.deepstack_features
    return torch.cat([torch.cat([*part]) for part in parts], -1)


QWEN2_VL = MediaFamily("Qwen2VLForConditionalGeneration", _VECTORS, text_class="Qwen2ForCausalLM")
QWEN2_5_VL = MediaFamily(
    "Qwen2_5_VLForConditionalGeneration", _VECTORS, text_class="Qwen2ForCausalLM"
)
QWEN3_VL = MediaFamily(
    "Qwen3VLForConditionalGeneration", deepstack_vectors, text_class="Qwen3ForCausalLM"
)
QWEN3_VL_MOE = MediaFamily(
    "Qwen3VLMoeForConditionalGeneration", deepstack_vectors, text_class="Qwen3MoeForCausalLM"
)
QWEN3_5 = MediaFamily("Qwen3_5ForConditionalGeneration", _VECTORS)
QWEN3_5_MOE = MediaFamily("Qwen3_5MoeForConditionalGeneration", _VECTORS)
