"""The parts that tiny models that see and hear have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig

from tests.models import SIZES

VOCABULARY = 512
TEXT = {**SIZES, "vocab_size": VOCABULARY}
SIDE, PATCH = 32, 8
TOWER = {
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
}
SQUARE = {"height": SIDE, "width": SIDE}
PINPOINTS = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]]
N_PATCHES = (SIDE // PATCH) ** 2


@dataclass(frozen=True)
class Family:
    """The config and the processor that transformers needs for a model.

    `config` gets the id of the placeholder. `mark` stands for an image in a text. `whole` is how
    many tokens of an image one step has to compute.
    """

    config: Callable[[int], PretrainedConfig]
    processor: Callable[[], Any]
    mark: str = "<image>"
    whole: int = 1
