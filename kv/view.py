"""The cache as attention layers see it: they write new keys and values, and gather all of them.

Keys are written after the rotary embedding, at their absolute positions.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
import torch
from torch import Tensor

from kv.arrays import IntArray
from kv.storage import Storage


@dataclass(frozen=True)
class KvcacheView:
    """The pages and lengths of some sequences of a batch."""

    storage: Storage
    page_table: IntArray  # [rows, pages]
    total_len: IntArray  # [rows], tokens after the write
    # [tokens] int64, where `write` puts the new tokens of layers with this page stride, on the
    # storage's device
    slots: Tensor

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Stores keys and values [tokens, kv_heads, head_dim] of the new tokens, row after row, as
        `Storage.write` does. Both have the storage's dtype."""
        self.storage.write(layer, self.slots, k, v)

    def gather(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [rows, pages * page_size, kv_heads, head_dim] of all rows.

        Behind a row's `total_len` stands whatever its pages hold: mask it. Where values are the
        first numbers of keys, both are one tensor.
        """
        keys = self._gather(self.storage.k[layer])
        if self.storage.layout[layer].has_values_in_keys:
            return keys, keys
        return keys, self._gather(self.storage.v[layer])

    @cached_property
    def _pages(self) -> Tensor:
        return _to_device(self.storage, self.page_table.ravel())  # [rows * pages]

    def _gather(self, cache: Tensor) -> Tensor:
        # One contiguous copy a page: three to five times faster than by token on a CPU.
        rows, pages = self.page_table.shape
        taken = cache.flatten(1).index_select(0, self._pages)
        return taken.view(rows, pages * self.storage.page_size, *cache.shape[2:])


def bind(
    storage: Storage,
    page_table: IntArray,
    total_len: IntArray,
    new_len: IntArray | None = None,
    layer: int = 0,
) -> KvcacheView:
    """A view of rows with these pages [rows, pages] and `total_len` tokens [rows]. The last
    `new_len` [rows] of them are written; by default the newest one of each row. It is for all
    layers with the group and the page stride of `layer`."""
    slots = token_slots(storage, layer, page_table, total_len, new_len)
    return KvcacheView(storage, page_table, total_len, _to_device(storage, slots))


def bind_padded(
    storage: Storage, page_table: IntArray, total_len: IntArray, multiple: int = 1
) -> KvcacheView:
    """A view to gather from: as few pages as the longest row allows, and a multiple of `multiple`
    tokens. Behind a row's own pages stands its first one again. It writes nothing."""
    n_pages = -(-int(total_len.max()) // storage.page_size)
    step = multiple // gcd(multiple, storage.page_size)
    padding = page_table[:, :1].repeat(-n_pages % step, axis=1)
    table = np.concatenate([page_table[:, :n_pages], padding], axis=1)
    return KvcacheView(storage, table, total_len, torch.empty(0, dtype=torch.int64))


def token_slots(
    storage: Storage,
    layer: int,
    page_table: IntArray,
    total_len: IntArray,
    new_len: IntArray | None = None,
) -> IntArray:
    """Slots of a layer for the last `new_len` tokens of each row, row after row: by default for the
    newest one. [sum(new_len)]

    A token's slot is its page times the layer's page stride plus its offset in the page. page_table
    [rows, pages]; total_len and new_len [rows], in tokens.
    """
    rows, positions = np.arange(len(total_len)), total_len - 1
    if new_len is not None:
        rows = np.repeat(rows, new_len)
        before = total_len - new_len.cumsum()
        positions = np.arange(len(rows)) + before[rows]
    pages = page_table[rows, positions // storage.page_size]
    return page_slots(storage, layer, pages, positions)


def page_slots(storage: Storage, layer: int, pages: IntArray, positions: IntArray) -> IntArray:
    """Slots of a layer for tokens at these positions of their rows, in these pages. All [tokens]"""
    slots: IntArray = pages * storage.page_stride[layer] + positions % storage.page_size
    return slots


def _to_device(storage: Storage, array: IntArray) -> Tensor:
    return torch.from_numpy(array).to(storage.device)
