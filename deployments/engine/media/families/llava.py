"""LLaVA 1.5: a tower, a projector, and a vector for each patch."""

import torch
from torch import Tensor
from transformers import LlavaForConditionalGeneration

from deployments.engine.media.families.family import Inputs, MediaFamily, Module


def image_vectors(base: Module, inputs: Inputs) -> Tensor:
    vectors = base.get_image_features(pixel_values=inputs["pixel_values"]).pooler_output
    return torch.cat([*vectors])


LLAVA = MediaFamily(LlavaForConditionalGeneration, "language_model", image_vectors)
