"""Owns the memory of keys and values: two tensors, page by page, layer by layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kv.arrays import IntArray


class Storage:
    """`k` and `v`, each [n_layers, n_pages, page_size, n_kv_heads, head_dim].

    Zeroed, because attention reads whole pages and multiplies what it masks by 0: a slot that was
    never written, or by a task that has ended, must not hold a NaN.
    """

    def __init__(
        self,
        n_layers: int,
        n_pages: int,
        page_size: int,
        n_kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (n_layers, n_pages, page_size, n_kv_heads, head_dim)
        self.page_size = page_size
        self.k = torch.zeros(shape, dtype=dtype, device=device)
        self.v = torch.zeros(shape, dtype=dtype, device=device)
        # (k, v) of each layer, as views that need not be made anew in every step.
        self.layers = list(zip(self.k.unbind(), self.v.unbind(), strict=True))

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Stores keys and values [tokens, n_kv_heads, head_dim] at `slots` [tokens] int64: page
        times page_size plus offset in the page."""
        for cache, new in ((self.k, k), (self.v, v)):
            cache[layer].flatten(0, 1).index_copy_(0, slots, new)

    def clear(self, pages: Sequence[int]) -> None:
        """Zeroes pages in all layers."""
        index = torch.tensor(pages, dtype=torch.int64).to(self.k.device)
        self.k.index_fill_(1, index, 0)
        self.v.index_fill_(1, index, 0)

    def clear_tail(self, page: int, n_tokens: int) -> None:
        """Zeroes a page but for its first `n_tokens` tokens."""
        self.k[:, page, n_tokens:] = 0
        self.v[:, page, n_tokens:] = 0

    def clear_tails(self, tails: IntArray) -> None:
        """`tails` [n, 2]: pages, and how many of their first tokens stay."""
        if whole := tails[tails[:, 1] == 0, 0].tolist():
            self.clear(whole)
        for page, n_kept in tails[tails[:, 1] > 0].tolist():
            self.clear_tail(page, n_kept)

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in one layer, keys and values."""
        return 2 * self.k[0, 0, 0].nbytes

    @staticmethod
    def page_bytes(
        n_layers: int, page_size: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> int:
        """Bytes of one page over all layers, keys and values."""
        return 2 * n_layers * page_size * n_kv_heads * head_dim * dtype.itemsize
