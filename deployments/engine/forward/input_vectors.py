"""Vectors of media at the positions of a step's tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class InputVectors(NamedTuple):
    """The vectors in the place of the embeddings of some tokens.

    indices: [n], of the tokens in the batch.
    vectors: [n, hidden], or [n, hidden * (1 + layers)]: further vectors are behind each token's
        first one, and are added to what the first layers return (deepstack).
    """

    indices: Tensor
    vectors: Tensor

    def put(self, x: Tensor) -> Sequence[Tensor]:
        """Writes the vectors to the embeddings x [tokens, hidden]. Returns the further ones."""
        own, *further = torch.split(self.vectors, x.shape[-1], -1)
        x[self.indices] = own
        return further
