"""Positions of a sequence whose images are positioned by line and column.

In three dimensions: of time, of lines, of columns. A text counts in all of them alike, from the end
of the image before it, which is as long as its longer side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kv.arrays import IntArray
from kv.content import PlaceholderRange


@dataclass(frozen=True, slots=True)
class GridPositions:
    """table: of the tokens up to the end of the last image. [3, tokens]
    shift: position of each later token, beyond its number.
    """

    table: IntArray
    shift: int

    @property
    def end(self) -> int:
        n_tokens: int = self.table.shape[1]
        return n_tokens

    def within(self, first: int, end: int) -> IntArray:
        """Returns the positions of the tokens `first` to `end` (excluded). [3, tokens]"""
        later = np.arange(max(first, self.end), end) + self.shift
        return np.concatenate([self.table[:, first:end], np.tile(later, (3, 1))], axis=1)


def grid_positions(media: Sequence[PlaceholderRange]) -> GridPositions | None:
    """Returns the positions of a sequence with these media; None where no medium has lines."""
    parts: list[IntArray] = []
    at = shift = 0
    for medium in media:
        if not medium.columns:
            continue
        start, indices = medium.first + shift, np.arange(medium.end - medium.first)
        lines, columns = indices // medium.columns, indices % medium.columns
        parts.append(np.tile(np.arange(at, medium.first) + shift, (3, 1)))
        parts.append(np.stack([np.zeros_like(indices), lines, columns]) + start)
        longer = max(len(indices) // medium.columns, medium.columns)
        at, shift = medium.end, shift + longer - len(indices)
    return GridPositions(np.concatenate(parts, axis=1), shift) if parts else None
