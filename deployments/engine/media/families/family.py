"""The parts in which a family of models that see or hear differs from others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor

from deployments.media.families.described import Described

Module = Any  # a torch module whose submodules are read by name, which its type does not declare
Inputs = Mapping[str, Tensor]  # of an image, or of a sound or a part of one
Vectors = Callable[[Module, Inputs], Tensor]


class Bidirectional(Enum):
    """The layers in which ids of one image attend to each other both ways."""

    NOWHERE = auto()
    IN_WINDOWS = auto()  # in those with a window alone
    EVERYWHERE = auto()


def image_features(*names: str) -> Vectors:
    """Returns a function that makes vectors by transformers' `get_image_features`.

    That one gets the inputs of these names.
    """

    def image_vectors(base: Module, inputs: Inputs) -> Tensor:
        given = {name: inputs[name] for name in names if name in inputs}
        return torch.cat([*base.get_image_features(**given).pooler_output])

    return image_vectors


def _none(processor: Described) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True)
class MediaFamily:
    """Towers that make vectors of images and sounds, in front of a language model that takes them
    as those of tokens.

    class_name: of transformers' model. Its module is imported where one is loaded.
    image_vectors: base of the model, inputs of one image -> [ids of the image, hidden]
    options: of its image processor, which its processor sets by itself.
    language: the name of the module in its base that is the language model without its head.
    text_class: of a model of transformers' whose layers compute the same as those of the language
        model, where there is none of the language model itself.
    sound_vectors: base of the model, inputs of one part of a sound -> [its ids, hidden]
    sound_options: as `options`, of its feature extractor.
    sound_window: frames of the parts of a sound that are encoded one by one.
    embedding: base, ids [...], what the language model embeds them as [..., hidden] -> the same,
        with those ids that the towers embed.
    bidirectional: where the ids of an image attend to each other both ways, by the model's config.
    """

    class_name: str
    image_vectors: Vectors | None = None
    options: Callable[[Described], Mapping[str, object]] = _none
    language: str = "language_model"
    text_class: str = ""
    sound_vectors: Vectors | None = None
    sound_options: Callable[[Described], Mapping[str, object]] = _none
    sound_window: Callable[[Described], int] | None = None
    embedding: Callable[[Module, Tensor, Tensor], Tensor] | None = None
    bidirectional: Callable[[Described], Bidirectional] = lambda _: Bidirectional.NOWHERE
