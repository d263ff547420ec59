"""The vectors of one medium, and where they stand in a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kv.arrays import IntArray
from kv.content import PlaceholderRange


@dataclass(frozen=True, slots=True)
class MediaVectors:
    """positions: where the placeholders are in the sequence, in order. [n]
    vectors: at these positions. [n, hidden]
    spans: first and end of positions that attend to each other both ways. A chunk has all of one,
        or what the cache does not have. in_windows: only in layers with a window.
    """

    medium: PlaceholderRange
    positions: IntArray
    vectors: Tensor
    spans: Sequence[tuple[int, int]] = ()
    in_windows: bool = False

    def within(self, first: int, end: int) -> tuple[IntArray, Tensor]:
        """The positions from `first` to `end` (excluded), and their vectors."""
        begin, stop = np.searchsorted(self.positions, (first, end))
        return self.positions[begin:stop], self.vectors[int(begin) : int(stop)]


def unbroken_spans(positions: IntArray) -> list[tuple[int, int]]:
    """First and end of each run of positions that follow one another."""
    breaks = (np.diff(positions) > 1).nonzero()[0] + 1
    runs = np.split(positions, breaks)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]
