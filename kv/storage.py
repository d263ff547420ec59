"""Owns the memory of keys and values: two tensors, page by page, layer by layer."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray


class Storage:
    """`k` and `v`, each [n_layers, n_pages, page_size, n_kv_heads, head_dim].

    Zeroed, because attention reads whole pages and multiplies what it masks by 0: in a place that
    was never written, or by a task long gone, must not stand a NaN.
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
        # Both of each layer, as views that need not be made anew in every step.
        self.layers = list(zip(self.k.unbind(), self.v.unbind(), strict=True))

    def clear(self, pages: Sequence[int]) -> None:
        index = torch.tensor(pages, dtype=torch.int64).to(self.k.device)
        self.k.index_fill_(1, index, 0)
        self.v.index_fill_(1, index, 0)

    def clear_behind(self, page: int, n_tokens: int) -> None:
        """Clears all of a page but its first `n_tokens`."""
        self.k[:, page, n_tokens:] = 0
        self.v[:, page, n_tokens:] = 0

    def clear_places(self, places: NDArray[np.int64]) -> None:
        """`places` [n, 2]: pages, and how many of their first tokens stay."""
        if whole := places[places[:, 1] == 0, 0].tolist():
            self.clear(whole)
        for page, n_kept in places[places[:, 1] > 0].tolist():
            self.clear_behind(page, n_kept)

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
