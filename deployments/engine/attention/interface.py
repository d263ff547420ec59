"""What a model's attention layers ask of a step, whatever computes it."""

from typing import NamedTuple

from torch import Tensor


class Scores(NamedTuple):
    """How they are made."""

    scale: float
    window: int | None  # tokens that one sees, itself included
    softcap: float | None
    sinks: Tensor | None  # [heads]
