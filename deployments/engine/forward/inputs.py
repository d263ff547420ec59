"""What one forward pass is computed from, as plain numbers that ranks can send to each other."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A flat batch: the new tokens of its rows, row after row."""

    token_ids: Ints  # [tokens]
    positions: Ints  # [tokens], absolute
    total_len: Ints  # [rows], tokens of the row after this step
    new_len: Ints  # [rows], of which new
    page_table: Ints  # [rows, pages]
    kept: Ints  # places in the batch whose logits are wanted
    uncleared: Ints  # [places, 2], pages and how many of their first tokens stay
    # The token ids where the host does not know them yet: on the device, and on this rank alone.
    drawn: Tensor | None = None  # [tokens]

    def pack(self) -> Ints:
        """All of it in one array, for `unpack`."""
        assert self.drawn is None, "other ranks can't know these"
        rows, pages = self.page_table.shape
        sizes = [len(self.token_ids), rows, pages, len(self.kept)]
        return np.concatenate(
            [
                np.array(sizes, dtype=np.int64),
                self.token_ids,
                self.positions,
                self.total_len,
                self.new_len,
                self.page_table.ravel(),
                self.kept,
                self.uncleared.ravel(),
            ]
        )

    @staticmethod
    def unpack(packed: Ints) -> "StepInputs":
        """What `pack` was called on."""
        tokens, rows, pages, kept = packed[:4].tolist()
        sizes = [4, tokens, tokens, rows, rows, rows * pages, kept]
        _, ids, positions, total, new, table, places, rest = np.split(packed, np.cumsum(sizes))
        table, rest = table.reshape(rows, pages), rest.reshape(-1, 2)
        return StepInputs(ids, positions, total, new, table, places, rest)
