"""Makes vectors of images and sounds, which stand in the places of a prompt's placeholders.

The same file gives the same vectors: each is encoded alone.
"""

from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.media.families.family import Inputs, MediaFamily, Module
from deployments.media.images import as_png, open_image
from deployments.media_rules import MediaKind, MediaRules
from deployments.wire import MediumFile

MEDIA_ENCODER = "media_encoder"  # a model's attribute, where it sees
TOWER_ATTENTION = "sdpa"
LARGEST_SIDE = 4096  # pixels


class MediaEncoder:
    """Owns what a model has besides its language model."""

    def __init__(
        self, base: PreTrainedModel, family: MediaFamily, processor: Any, rules: MediaRules
    ) -> None:
        """`base` is without its language model. `processor` is transformers', and `rules` say how
        many vectors it makes a medium come to."""
        self.rules = rules
        self._base: Module = base
        self._family = family
        self._processor = processor
        self._options = family.options(processor)
        self.bidirectional = family.bidirectional(base.config)
        self._base.set_attn_implementation(TOWER_ATTENTION)
        self.placeholder_ids = frozenset(
            one.placeholder_id for one in (rules.images, rules.audio) if one is not None
        )

    def prepare(self, file: MediumFile) -> Inputs:
        """Decodes a file, on any thread. Raises UnreadableError."""
        image = open_image(file.data)
        inputs = self._processor.image_processor(
            images=[image], return_tensors="pt", **self._options
        )
        return {name: one for name, one in inputs.items() if isinstance(one, Tensor)}

    @torch.inference_mode()
    def encode(self, inputs: Inputs) -> Tensor:
        """[ids of the medium, hidden], on the model's device. Raises whatever the model raises."""
        weight = next(self._base.parameters())
        placed = {
            name: one.to(weight.device, weight.dtype if one.is_floating_point() else None)
            for name, one in inputs.items()
        }
        return self._family.image_vectors(self._base, placed)

    def encode_largest(self) -> Tensor:
        """Of an image that no processor leaves larger than what its model takes."""
        file = as_png(Image.new("RGB", (LARGEST_SIDE, LARGEST_SIDE)))
        return self.encode(self.prepare(MediumFile(kind=MediaKind.IMAGE, data=file)))

    def to(self, device: torch.device | str) -> None:
        self._base.to(device)


def move(model: PreTrainedModel, device: torch.device | str) -> PreTrainedModel:
    """A model with all of its parts, on a device."""
    if (encoder := media_encoder(model)) is not None:
        encoder.to(device)
    return model.to(device)


def media_encoder(model: PreTrainedModel) -> MediaEncoder | None:
    """None for a model that reads text only."""
    found: MediaEncoder | None = getattr(model, MEDIA_ENCODER, None)
    return found
