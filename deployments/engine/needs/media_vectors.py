"""The vectors of media: where they stand in a sequence, and a cache of them."""

from collections import OrderedDict
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


class EncoderCache:
    """Vectors of media, by the digest of what they were made of. The least recently used ones go
    first when they are more than fit."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._vectors: OrderedDict[bytes, Tensor] = OrderedDict()

    def get(self, digest: bytes) -> Tensor | None:
        """[ids of the medium, hidden]"""
        if (found := self._vectors.get(digest)) is not None:
            self._vectors.move_to_end(digest)
        return found

    def put(self, digest: bytes, vectors: Tensor) -> None:
        """Adds the vectors of a medium that it does not hold.

        Vectors that are larger than all its room are left out.
        """
        if vectors.nbytes > self._max_bytes:
            return
        self._vectors[digest] = vectors
        self._n_bytes += vectors.nbytes
        while self._n_bytes > self._max_bytes:
            self._n_bytes -= self._vectors.popitem(last=False)[1].nbytes
