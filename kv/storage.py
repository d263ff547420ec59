"""Owns the memory of keys and values: a page is one piece, with all layers of its group."""

from collections.abc import Sequence
from copy import copy
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kv.arrays import IntArray
from kv.layout import LayerShape, Layout, group_layers, page_numbers


class Storage:
    """`k` and `v` by layer, each [n_pages, page_size, kv_heads, head_dim] as `layout` says. Where
    values are the first numbers of keys, `v` is `k`.

    All groups of layers share the pages: a page holds one group at a time. Zeroed, because
    attention reads whole pages and multiplies what it masks by 0: what was never written, or by a
    task that has ended, must not hold a NaN.
    """

    def __init__(
        self,
        layout: Layout,
        n_pages: int,
        page_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.layout = layout
        self.page_size = page_size
        self.dtype = dtype
        self.groups = group_layers(layout)
        self.token_bytes, self.has_values_in_keys = self._about_tokens()
        size = page_numbers(layout, self.groups, page_size)
        self._pages = torch.zeros(n_pages, size, dtype=dtype, device=device)
        # By layer: its group, and how many tokens of it lie from one page's begin to the next one's
        # if all of a page were its tokens.
        self.group_of = [0] * len(layout)
        self.page_stride = [size // max(1, shape.key_numbers) for shape in layout]
        begins = [0] * len(layout)  # of each layer in its page
        for number, group in enumerate(self.groups):
            begin = 0
            for layer in group.layers:
                self.group_of[layer], begins[layer] = number, begin
                begin += page_size * layout[layer].token_numbers
        self.addressed_as = self._addressed_as(layout)
        # As views that need not be made anew in every step.
        self.layers = [
            self._views(begin, shape) for begin, shape in zip(begins, layout, strict=True)
        ]
        self.k = [k for k, _ in self.layers]
        self.v = [v for _, v in self.layers]
        self._parts_by_group = [self._parts(layer_group.layers) for layer_group in self.groups]

    @property
    def device(self) -> torch.device:
        return self._pages.device

    def part(self, begin: int, end: int) -> "Storage":
        """The layers from `begin` up to `end`, numbered from 0, in the same pages: what one of the
        models sees that share them. What is cleared is cleared in all layers."""
        if (begin, end) == (0, len(self.layout)):
            return self
        part = copy(self)
        part.layout = self.layout[begin:end]
        part.group_of, part.page_stride = self.group_of[begin:end], self.page_stride[begin:end]
        part.layers = self.layers[begin:end]
        part.k, part.v = self.k[begin:end], self.v[begin:end]
        part.token_bytes, part.has_values_in_keys = part._about_tokens()
        part.addressed_as = part._addressed_as(part.layout)
        return part

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Stores keys and values [tokens, kv_heads, head_dim] at `slots` [tokens] int64: page times
        the layer's `page_stride` plus offset in the page. Values that are in the keys are left."""
        n_stored = 1 if self.layout[layer].has_values_in_keys else 2
        for cache, new in [*zip(self.layers[layer], (k, v), strict=True)][:n_stored]:
            self._at(cache, layer).index_copy_(0, slots, new)

    def take(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values at slots of any shape: [..., kv_heads, head_dim] each. Values that are in
        the keys are their first numbers."""
        keys, values = (_rows(self._at(cache, layer), slots) for cache in self.layers[layer])
        return keys, values[..., : self.layout[layer].value_dim]

    def take_keys(self, layer: int, pages: Tensor) -> Tensor:
        """Keys of all tokens of some pages. [pages * page_size, kv_heads * head_dim]"""
        taken = _rows(self.k[layer].flatten(1), pages)
        return taken.view(-1, self.layout[layer].key_numbers)

    def _at(self, cache: Tensor, layer: int) -> Tensor:
        """A layer's keys or values by slot. What lies between two pages of the layer is no slot."""
        _, page_size, *shape = cache.shape
        n_slots = (len(cache) - 1) * self.page_stride[layer] + page_size
        strides = (cache.stride(1), *cache.stride()[2:])
        return cache.as_strided((n_slots, *shape), strides, cache.storage_offset())

    def group_bytes(self, group: int) -> int:
        """Bytes at the begin of a page that hold a group's layers."""
        return self.page_size * self.groups[group].numbers(self.layout) * self.dtype.itemsize

    def raw_pages(self) -> NDArray[np.uint8]:
        """The bytes of all pages [n_pages, bytes], on a CPU. They change with the pages."""
        return self._pages.view(torch.uint8).numpy()

    def clear_tail(self, group: int, page: int, n_tokens: int) -> None:
        """Zeroes a page of a group but for its first `n_tokens` tokens."""
        for part in self._parts_by_group[group]:
            part[page, :, n_tokens:] = 0

    def clear_tails(self, tails: IntArray) -> None:
        """`tails` [n, 3]: groups, pages, and how many of their first tokens stay."""
        for group, page, n_kept in tails.tolist():
            self.clear_tail(group, page, n_kept)

    def _about_tokens(self) -> tuple[int, bool]:
        """Returns the bytes of a token in one layer, keys and values, at most; and whether some
        layer has values in keys."""
        n_bytes = max(shape.token_numbers for shape in self.layout) * self.dtype.itemsize
        return n_bytes, any(shape.has_values_in_keys for shape in self.layout)

    def _views(self, begin: int, shape: LayerShape) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, which has the numbers of its pages from `begin` on."""
        sizes = len(self._pages), self.page_size, shape.kv_heads, shape.head_dim
        middle = begin + self.page_size * shape.key_numbers
        end = begin + self.page_size * shape.token_numbers
        k = self._pages[:, begin:middle].view(sizes)
        return k, k if shape.has_values_in_keys else self._pages[:, middle:end].view(sizes)

    def _parts(self, layers: Sequence[int]) -> "list[NDArray[np.uint8] | Tensor]":
        """The bytes of keys and values of a group's layers, in as few views as there can be of
        those that lie behind each other and have as many a token: [n_pages, n, page_size, bytes].
        Those of NumPy on a CPU, where they are written to in less time."""
        sizes, every = list[int](), self._pages.view(torch.uint8)
        for layer in layers:
            shape = self.layout[layer]
            sizes += [shape.key_numbers, shape.token_numbers - shape.key_numbers]
        parts, begin = list[NDArray[np.uint8] | Tensor](), 0
        for numbers, alike in groupby(size for size in sizes if size):
            n, n_bytes = len([*alike]), numbers * self.dtype.itemsize
            end = begin + n * self.page_size * n_bytes
            part = every[:, begin:end].view(-1, n, self.page_size, n_bytes)
            parts.append(part.numpy() if part.device.type == "cpu" else part)
            begin = end
        return parts

    def _addressed_as(self, layout: Layout) -> list[int]:
        """Returns for each layer the first one whose tokens have the same pages and slots. A layer
        that stores nothing has them of any other one."""
        addresses = [*zip(self.group_of, self.page_stride, strict=True)]
        stored = [layer for layer, shape in enumerate(layout) if shape.token_numbers] or [0]
        firsts = {addresses[layer]: layer for layer in reversed(stored)}
        return [firsts.get(address, stored[0]) for address in addresses]

    @staticmethod
    def page_bytes(layout: Layout, page_size: int, dtype: torch.dtype) -> int:
        """Bytes of one page, which holds the layers of one group."""
        return page_numbers(layout, group_layers(layout), page_size) * dtype.itemsize


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index], also of numbers of one byte that torch can't index."""
    if x.dtype.itemsize > 1:
        return x[index]
    return x.view(torch.uint8)[index].view(x.dtype)
