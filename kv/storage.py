"""Owns the memory of keys and values: two tensors, page by page, layer by layer."""

import torch


class Storage:
    """`k` and `v`, each [n_layers, n_pages, page_size, n_kv_heads, head_dim].

    Zeroed, because attention reads whole pages and masks what was never written.
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

    @staticmethod
    def page_bytes(
        n_layers: int, page_size: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> int:
        """Bytes of one page over all layers, keys and values."""
        return 2 * n_layers * page_size * n_kv_heads * head_dim * dtype.itemsize
