"""Cuts the new tokens of rows into tiles, each of which is one task of an attention kernel."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def tile(rows: Ints, new_len: Ints, total_len: Ints, tokens: int) -> Ints:
    """Rows cut into pieces of up to `tokens` new tokens: [tiles, 2], row and first new token.

    Those with the longest contexts come first: the last programs to end are then short ones.
    """
    counts = -(-new_len // tokens)
    which = np.repeat(np.arange(len(rows)), counts)
    first = (np.arange(len(which)) - np.repeat(counts.cumsum() - counts, counts)) * tokens
    context = (total_len - new_len)[which] + first
    order = np.argsort(-context, kind="stable")
    return np.stack([rows[which], first], axis=1)[order]
