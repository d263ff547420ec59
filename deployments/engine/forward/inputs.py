"""The inputs of one forward pass, as plain numbers that ranks can send to each other."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kv.arrays import IntArray


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A flat batch: the new tokens of its rows, row after row."""

    token_ids: IntArray  # [tokens]
    positions: IntArray  # [tokens], of each token in its row
    total_len: IntArray  # [rows], tokens of the row after this step
    new_len: IntArray  # [rows], new tokens of the row
    page_table: IntArray  # [rows, pages]
    logit_indices: IntArray  # [logits], indices in the batch of the tokens that need logits
    # [tails, 2]: a page to clear before the step, and how many of its first tokens stay.
    stale_tails: IntArray
    # [tokens], used in place of `token_ids` while the host does not know these yet. They are on
    # the device of this rank alone.
    sampled_ids: Tensor | None = None

    def pack(self) -> IntArray:
        """All fields in one array [numbers], which `unpack` reads."""
        assert self.sampled_ids is None, "these are on one rank's device, and can't be sent"
        rows, pages = self.page_table.shape
        sizes = [len(self.token_ids), rows, pages, len(self.logit_indices)]
        return np.concatenate(
            [
                np.array(sizes, dtype=np.int64),
                self.token_ids,
                self.positions,
                self.total_len,
                self.new_len,
                self.page_table.ravel(),
                self.logit_indices,
                self.stale_tails.ravel(),
            ]
        )

    @staticmethod
    def unpack(packed: IntArray) -> "StepInputs":
        """The inputs that `pack` was called on."""
        tokens, rows, pages, logits = packed[:4].tolist()
        sizes = [4, tokens, tokens, rows, rows, rows * pages, logits]
        _, ids, positions, total, new, table, indices, tails = np.split(packed, np.cumsum(sizes))
        table, tails = table.reshape(rows, pages), tails.reshape(-1, 2)
        return StepInputs(ids, positions, total, new, table, indices, tails)
