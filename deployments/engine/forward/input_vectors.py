"""Vectors of media in the places of a step's tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class InputVectors(NamedTuple):
    """What stands in the place of the embeddings of some tokens: their indices [n], and for each of
    them its vector [n, hidden]. Behind it may be further ones [n, hidden * (1 + layers)], which are
    added to what the first layers return (deepstack)."""

    indices: Tensor
    vectors: Tensor

    def put(self, x: Tensor) -> Sequence[Tensor]:
        """Writes the vectors to the embeddings x [tokens, hidden]. Returns the further ones."""
        own, *further = torch.split(self.vectors, x.shape[-1], -1)
        x[self.indices] = own
        return further
