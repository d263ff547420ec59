"""Owns the memory of keys and values, page by page, layer by layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kv.arrays import IntArray
from kv.layout import Layout


class Storage:
    """`k` and `v` by layer, each [n_pages, page_size, kv_heads, head_dim] as `layout` says.

    Zeroed, because attention reads whole pages and multiplies what it masks by 0: a slot that was
    never written, or by a task that has ended, must not hold a NaN.
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
        self.page_size = page_size
        self.dtype = dtype
        # Of one layer, keys and values, at most.
        self.token_bytes = max(shape.token_numbers for shape in layout) * dtype.itemsize
        # One tensor for all layers of one shape: [keys and values, layers, n_pages, ...].
        self._tensors = {
            shape: torch.zeros(
                (2, layout.count(shape), n_pages, page_size, *shape), dtype=dtype, device=device
            )
            for shape in dict.fromkeys(layout)
        }
        pairs = {
            shape: zip(*tensor.unbind(), strict=True) for shape, tensor in self._tensors.items()
        }
        # (k, v) of each layer, as views that need not be made anew in every step.
        self.layers: list[tuple[Tensor, Tensor]] = [next(pairs[shape]) for shape in layout]
        self.k = [k for k, _ in self.layers]
        self.v = [v for _, v in self.layers]

    @property
    def device(self) -> torch.device:
        return self.k[0].device

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Stores keys and values [tokens, kv_heads, head_dim] at `slots` [tokens] int64: page times
        page_size plus offset in the page."""
        for cache, new in zip(self.layers[layer], (k, v), strict=True):
            cache.flatten(0, 1).index_copy_(0, slots, new)

    def clear(self, pages: Sequence[int]) -> None:
        """Zeroes pages in all layers."""
        index = torch.tensor(pages, dtype=torch.int64).to(self.device)
        for tensor in self._tensors.values():
            tensor.index_fill_(2, index, 0)

    def clear_tail(self, page: int, n_tokens: int) -> None:
        """Zeroes a page but for its first `n_tokens` tokens."""
        for tensor in self._tensors.values():
            tensor[:, :, page, n_tokens:] = 0

    def clear_tails(self, tails: IntArray) -> None:
        """`tails` [n, 2]: pages, and how many of their first tokens stay."""
        if whole := tails[tails[:, 1] == 0, 0].tolist():
            self.clear(whole)
        for page, n_kept in tails[tails[:, 1] > 0].tolist():
            self.clear_tail(page, n_kept)

    @staticmethod
    def page_bytes(layout: Layout, page_size: int, dtype: torch.dtype) -> int:
        """Bytes of one page over all layers, keys and values."""
        return page_size * dtype.itemsize * sum(shape.token_numbers for shape in layout)
