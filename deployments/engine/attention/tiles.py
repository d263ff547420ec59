"""Cuts the new tokens of rows into tiles: each tile is one task of an attention kernel."""

import numpy as np

from kv.arrays import IntArray


def tile(rows: IntArray, new_len: IntArray, total_len: IntArray, tokens: int) -> IntArray:
    """Cuts each row into tiles of at most `tokens` new tokens.

    `rows` [n] are row numbers. `new_len` and `total_len` [n] are their lengths in tokens. Returns
    [tiles, 2]: the row, and the index of the tile's first token among the row's new tokens. The
    tile with the longest context comes first, so that the tasks that end last are short.
    """
    counts = -(-new_len // tokens)
    index = np.repeat(np.arange(len(rows)), counts)
    first = (np.arange(len(index)) - np.repeat(counts.cumsum() - counts, counts)) * tokens
    context = (total_len - new_len)[index] + first
    order = np.argsort(-context, kind="stable")
    return np.stack([rows[index], first], axis=1)[order]
