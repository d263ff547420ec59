"""Llama 4: tiles, and the whole image behind them."""

from torch import Tensor

from deployments.engine.media.families.family import Inputs, MediaFamily, Module


def image_vectors(base: Module, inputs: Inputs) -> Tensor:
    """Its projector is no part of `get_image_features`."""
    states = base.get_image_features(inputs["pixel_values"], return_dict=True).last_hidden_state
    vectors: Tensor = base.multi_modal_projector(states.flatten(0, -2))
    return vectors


LLAMA4 = MediaFamily("Llama4ForConditionalGeneration", image_vectors)
