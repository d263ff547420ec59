"""The vectors of one medium, and where they stand in a sequence."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kv.arrays import IntArray
from kv.content import Medium


@dataclass(frozen=True, slots=True)
class MediaVectors:
    """places: where the placeholders are in the sequence, in order. [n]
    vectors: in their places. [n, hidden]
    """

    medium: Medium
    places: IntArray
    vectors: Tensor

    def within(self, first: int, end: int) -> tuple[IntArray, Tensor]:
        """The places from `first` to `end` (excluded), and their vectors."""
        begin, stop = np.searchsorted(self.places, (first, end))
        return self.places[begin:stop], self.vectors[int(begin) : int(stop)]
