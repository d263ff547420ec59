"""Cuts the new tokens of rows into tiles: each tile is one task of an attention kernel."""

import numpy as np

from kv.arrays import IntArray

# [spans, 4]: a row, the first and the end of its new tokens that attend to each other both ways,
# and whether they do so only in layers with a window.
NO_SPANS = np.empty((0, 4), dtype=np.int64)


def spans_within(spans: IntArray, window: int | None) -> IntArray:
    """Returns the spans that hold in a layer with this window."""
    return spans if window is not None else spans[spans[:, 3] == 0]


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


def tile_spans(
    rows: IntArray, new_len: IntArray, total_len: IntArray, tokens: int, spans: IntArray
) -> tuple[IntArray, IntArray]:
    """Cuts rows with spans as `tile` does. Tiles begin and end where the spans do.

    Returns [tiles, 4]: the row, the tile's first token and its end among the row's new tokens, and
    the position from which on its tokens see no key (0: each token sees the keys up to its own).
    The second array [tiles] says how many keys each tile may see, in descending order.
    """
    parts = []
    for row, new, total in zip(rows, new_len, total_len, strict=True):
        at, before = 0, total - new
        for _, first, end, _ in sorted(spans[spans[:, 0] == row].tolist()):
            parts += [(row, at, first, 0), (row, first, end, before + end)]
            at = end
        parts.append((row, at, new, 0))
    part = np.array([piece for piece in parts if piece[1] < piece[2]], dtype=np.int64)
    counts = -(-(part[:, 2] - part[:, 1]) // tokens)
    index = np.repeat(np.arange(len(part)), counts)
    nth = np.arange(len(index)) - np.repeat(counts.cumsum() - counts, counts)
    first = part[index, 1] + nth * tokens
    end = np.minimum(first + tokens, part[index, 2])
    tiles = np.stack([part[index, 0], first, end, part[index, 3]], axis=1)
    context = (total_len - new_len)[np.searchsorted(rows, tiles[:, 0])] + end
    context = np.maximum(context, tiles[:, 3])
    order = np.argsort(-context, kind="stable")
    return tiles[order], context[order]
