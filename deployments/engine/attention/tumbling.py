"""Attention within tumbling windows: each part of a row that lies in one window is a row by itself.

Such a window begins at a multiple of its length, which is a multiple of a page. So the part is a
row whose page table begins there, and no kernel knows of windows that tumble.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.layout import Group
from kv.storage import Storage


class Rows(NamedTuple):
    """Rows of a flat batch, as attention plans them."""

    page_table: IntArray | Tensor  # [rows, pages], on the host or on the device
    total_len: IntArray  # [rows], tokens after the step
    new_len: IntArray  # [rows]


def tumbling_window(group: Group) -> int | None:
    """The length of a group's windows, in tokens; None: these slide, or there are none."""
    return group.window if group.is_tumbling else None


def is_within_windows(window: int, total_len: IntArray, new_len: IntArray) -> bool:
    """Whether the new tokens of each row lie in one window."""
    first = (total_len - new_len) // window
    return bool((first == (total_len - 1) // window).all())


def cut_rows(window: int, page_size: int, rows: Rows) -> Rows:
    """Cuts rows where windows of `window` tokens begin. The new tokens stay in their order.

    Each row has new tokens.
    """
    table, total, new = rows
    first = (total - new) // window
    n_parts = (total - 1) // window - first + 1
    row = np.repeat(np.arange(len(total)), n_parts)
    nth = np.arange(len(row)) - np.repeat(n_parts.cumsum() - n_parts, n_parts)
    begin = (first[row] + nth) * window
    end = np.minimum(total[row], begin + window)
    new_len = end - np.maximum((total - new)[row], begin)
    return Rows(_from_pages(table, row, begin, end, page_size), end - begin, new_len)


def _from_pages(
    table: IntArray | Tensor, row: IntArray, begin: IntArray, end: IntArray, page_size: int
) -> IntArray | Tensor:
    """The pages of these rows from their token `begin` up to `end`. [rows, pages]"""
    width = -(-int((end - begin).max()) // page_size)
    pages = (begin[:, None] // page_size + np.arange(width)).clip(max=table.shape[1] - 1)
    if isinstance(table, np.ndarray):
        found: IntArray = table[row[:, None], pages]
        return found
    at = to_device(row[:, None] * table.shape[1] + pages, table.device)
    return torch.take(table, at)


def rows_of_layer(storage: Storage, layer: int, rows: Rows) -> Rows:
    """The rows as a layer attends to them: cut where its windows tumble."""
    window = tumbling_window(storage.groups[storage.group_of[layer]])
    return rows if window is None else cut_rows(window, storage.page_size, rows)
