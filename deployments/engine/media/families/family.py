"""What a family of models that see has that others have not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

Module = Any  # a torch module whose submodules are read by name, which its type does not declare
Inputs = Mapping[str, Tensor]  # of one image, as its image processor makes them


@dataclass(frozen=True, slots=True)
class MediaFamily:
    """A tower that makes vectors of images, in front of a language model that takes them as those
    of tokens.

    model_class: without its subclasses.
    language: the name of the module in its base that is the language model without its head.
    image_vectors: base of the model, inputs of one image -> [ids of the image, hidden]
    """

    model_class: type[PreTrainedModel]
    language: str
    image_vectors: Callable[[Module, Inputs], Tensor]
