"""A flat batch as attention on a GPU reads it: nothing of it is ever asked back from the device.

What the host must know to launch (how many programs, how long a context) comes from its own copy
of the lengths, or from upper bounds of them, so that a recorded launch serves other lengths too.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.attention.interface import AttentionParams
from deployments.engine.attention.tiles import tile
from deployments.engine.kernels.rotary import HeadNorm, RotaryEmbedding
from deployments.engine.transfer import to_device
from kv.storage import Storage
from kv.view import token_slots

if TYPE_CHECKING:
    from deployments.engine.kernels.gpu.attention_ops import Attention, Tiling

Ints = NDArray[np.int64]
SCALES = 1.0, 1.0  # what keys and values are divided by in fp8
NO_SLOT = -1  # of a token that is written nowhere
SHARED_BYTES = 227 << 10  # of a multiprocessor that does not say


@dataclass(frozen=True, slots=True)
class TritonAttention:
    """What the attention layers of one forward pass share; tensors are on the storage's device.

    A row of `new_len` 0 is no row; one with a `total_len` of 0 has a token that means nothing.
    """

    storage: Storage
    page_table: Tensor  # [rows, pages]
    total_len: Tensor  # [rows]
    starts: Tensor  # [rows + 1]
    slots: Tensor  # [tokens] int64
    chunk_rows: Ints  # rows with more than one new token, as the host knows them
    chunk_len: Ints  # new tokens of each
    chunk_total: Ints  # tokens of each after the step
    longest_decode: int  # bound of total_len of the rows with one new token; 0: there are none
    tiling: "Tiling | None" = None
    _tiles: dict[int, Tensor] = field(default_factory=dict)

    def attend(
        self,
        layer: int,
        q: Tensor,  # [tokens, heads, head_dim]
        k: Tensor,  # [tokens, kv_heads, head_dim], rotary embedding applied
        v: Tensor,
        params: AttentionParams,
    ) -> Tensor:
        from deployments.engine.kernels.gpu.attention_ops import store

        store(k, v, *self._pages(layer), self.slots, SCALES)
        return self._attend(layer, q, params)

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,  # [tokens, heads + 2 * kv_heads, head_dim], contiguous
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,  # of queries and keys
        params: AttentionParams,
    ) -> Tensor:
        """Norms, rotary embedding and storing are one launch."""
        from deployments.engine.kernels.gpu.layer_ops import rotary_and_store

        q = rotary_and_store(
            qkv, rotary.cos, rotary.sin, norms, *self._pages(layer), self.slots, SCALES
        )
        return self._attend(layer, q, params)

    def _pages(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.storage.k[layer], self.storage.v[layer]

    def _attend(self, layer: int, q: Tensor, params: AttentionParams) -> Tensor:
        from deployments.engine.kernels.gpu.attention_ops import Attention

        tiling = self.tiling or tiling_of(q.dtype, q.shape[-1], q.device)
        k_pages, v_pages = self._pages(layer)
        attention = Attention(k_pages, v_pages, *params, SCALES, tiling)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if len(self.chunk_rows):
            out = self._attend_chunks(attention, out, q)
        if self.longest_decode:
            attention.decodes(
                out, q, self.page_table, self.total_len, self.starts, self.longest_decode
            )
        return out

    def _attend_chunks(self, attention: "Attention", out: Tensor, q: Tensor) -> Tensor:
        """`out` with the results of rows that have more than one new token."""
        tiles = self._tiled(attention.tile_tokens(q.shape[1]))
        attention.chunks(out, q, self.page_table, self.total_len, self.starts, tiles)
        return out

    def _tiled(self, tokens: int) -> Tensor:
        if tokens not in self._tiles:
            tiles = tile(self.chunk_rows, self.chunk_len, self.chunk_total, tokens)
            self._tiles[tokens] = to_device(tiles, self.slots.device)
        return self._tiles[tokens]


def plan_triton_attention(
    storage: Storage,
    page_table: Ints,  # [rows, pages]
    total_len: Ints,  # [rows]
    new_len: Ints,  # [rows]
    tiling: "Tiling | None" = None,
) -> TritonAttention:
    """One copy to the device, whatever the batch is."""
    rows, width = page_table.shape
    starts = np.concatenate([np.zeros(1, dtype=np.int64), new_len.cumsum()])
    slots = token_slots(page_table, total_len, new_len, storage.page_size)
    parts = (page_table.ravel(), total_len, starts, slots)
    flat = to_device(np.concatenate(parts), storage.k.device)
    table, total, begins, places = torch.split(flat, [len(part) for part in parts])
    chunks = (new_len > 1).nonzero()[0]
    return TritonAttention(
        storage=storage,
        page_table=table.view(rows, width),
        total_len=total,
        starts=begins,
        slots=places,
        chunk_rows=chunks,
        chunk_len=new_len[chunks],
        chunk_total=total_len[chunks],
        longest_decode=int(total_len[new_len == 1].max(initial=0)),
        tiling=tiling,
    )


@cache
def tiling_of(dtype: torch.dtype, head_dim: int, device: torch.device) -> "Tiling":
    from deployments.engine.kernels.gpu.attention_ops import tiling_for

    shared = SHARED_BYTES
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        shared = getattr(properties, "shared_memory_per_block_optin", SHARED_BYTES)
    return tiling_for(dtype, head_dim, shared)
