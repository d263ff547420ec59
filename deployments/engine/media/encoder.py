"""Makes vectors of images and sounds, which stand in the places of a prompt's placeholders.

The same file gives the same vectors: each is encoded alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.media.families.family import Inputs, MediaFamily, Module
from deployments.media.images import open_image
from deployments.media_rules import MediaKind, MediaRules
from deployments.wire import MediumFile

MEDIA_ENCODER = "media_encoder"  # a model's attribute, where it sees
TOWER_ATTENTION = "sdpa"
SOUND_INPUTS = "input_features"  # that no image has


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
        self._image_options = family.options(processor)
        self._sound_options = family.sound_options(processor)
        self._base.set_attn_implementation(TOWER_ATTENTION)
        self.placeholder_ids = frozenset(
            one.placeholder_id for one in (rules.images, rules.audio) if one is not None
        )

    def prepare(self, file: MediumFile) -> Sequence[Inputs]:
        """Decodes a file, on any thread, to parts that are encoded one by one. Raises
        UnreadableError."""
        if file.kind is MediaKind.IMAGE:
            return [self._read_image(file.data)]
        inputs = self._read_sound(file.data)
        if self._family.sound_window is None:
            return [inputs]
        window = self._family.sound_window(self._processor)
        return [{SOUND_INPUTS: one} for one in torch.split(inputs[SOUND_INPUTS], window, -1)]

    def _read_image(self, data: bytes) -> Inputs:
        inputs = self._processor.image_processor(
            images=[open_image(data)], return_tensors="pt", **self._image_options
        )
        return _tensors(inputs)

    def _read_sound(self, data: bytes) -> Inputs:
        from deployments.media.model_samples import model_samples  # most models hear nothing

        extractor = self._processor.feature_extractor
        rate = extractor.sampling_rate
        inputs = extractor(
            model_samples(data, rate),
            sampling_rate=rate,
            return_tensors="pt",
            **self._sound_options,
        )
        return _tensors(inputs)

    @torch.inference_mode()
    def encode(self, inputs: Inputs) -> Tensor:
        """[ids of the part, hidden], on the model's device. Raises whatever the model raises."""
        weight = next(self._base.parameters())
        placed = {
            name: one.to(weight.device, weight.dtype if one.is_floating_point() else None)
            for name, one in inputs.items()
        }
        is_sound = SOUND_INPUTS in inputs
        vectors = self._family.sound_vectors if is_sound else self._family.image_vectors
        assert vectors is not None, "its rules have no such media"
        return vectors(self._base, placed)

    def to(self, device: torch.device | str) -> None:
        self._base.to(device)


def _tensors(inputs: Mapping[str, object]) -> Inputs:
    return {name: one for name, one in inputs.items() if isinstance(one, Tensor)}


def move(model: PreTrainedModel, device: torch.device | str) -> PreTrainedModel:
    """A model with all of its parts, on a device."""
    if (encoder := media_encoder(model)) is not None:
        encoder.to(device)
    return model.to(device)


def media_encoder(model: PreTrainedModel) -> MediaEncoder | None:
    """None for a model that reads text only."""
    found: MediaEncoder | None = getattr(model, MEDIA_ENCODER, None)
    return found
