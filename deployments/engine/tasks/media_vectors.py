"""The vectors of one medium, and where they stand in a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kv.arrays import IntArray
from kv.content import Medium


@dataclass(frozen=True, slots=True)
class MediaVectors:
    """places: where the placeholders are in the sequence, in order. [n]
    vectors: in their places. [n, hidden]
    spans: first and end of the places that attend to each other both ways. A chunk has all of one,
        or what the cache does not have. in_windows: only in layers with a window.
    """

    medium: Medium
    places: IntArray
    vectors: Tensor
    spans: Sequence[tuple[int, int]] = ()
    in_windows: bool = False

    def within(self, first: int, end: int) -> tuple[IntArray, Tensor]:
        """The places from `first` to `end` (excluded), and their vectors."""
        begin, stop = np.searchsorted(self.places, (first, end))
        return self.places[begin:stop], self.vectors[int(begin) : int(stop)]


def unbroken_spans(places: IntArray) -> list[tuple[int, int]]:
    """First and end of each run of places that follow one another."""
    breaks = (np.diff(places) > 1).nonzero()[0] + 1
    runs = np.split(places, breaks)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]
