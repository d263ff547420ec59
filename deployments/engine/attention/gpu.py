"""Attention on a GPU by our Triton kernels. The host never waits for the device here.

Launches need the number of programs and the longest context. The host takes them from its own copy
of the lengths, or from upper bounds, so that a captured launch also serves shorter contexts.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from deployments.engine.attention.interface import AttentionParams
from deployments.engine.attention.tiles import NO_SPANS, spans_within, tile, tile_spans
from deployments.engine.kernels.norms import HeadNorm
from deployments.engine.kernels.rotary import RotaryEmbedding
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage
from kv.view import token_slots

if TYPE_CHECKING:
    from deployments.engine.kernels.gpu.attention_ops import Attention, Tiling

FP8_SCALES = 1.0, 1.0  # divisors of keys and values that are stored in fp8
NO_SLOT = -1  # slot of a padding token, whose keys and values are not stored
MAX_SMALL_CHUNK = 32  # tokens of a row that are always computed by our own kernels
DEFAULT_SHARED_BYTES = 227 << 10  # of a multiprocessor, where torch does not report it


@dataclass(frozen=True, slots=True)
class TritonAttention:
    """The attention of one forward pass on a GPU. Its tensors are on the storage's device.

    A row with a `new_len` of 0 has no tokens in the batch. A row with a `total_len` of 0 is
    padding: its token has no context and no slot.
    """

    storage: Storage
    page_table: Tensor  # [rows, pages]
    total_len: Tensor  # [rows], tokens after the step
    starts: Tensor  # [rows + 1], index of each row's first new token in the batch
    slots: Tensor  # [tokens] int64
    chunk_rows: IntArray  # [chunks] on the host, rows with more than one new token
    chunk_len: IntArray  # [chunks], new tokens of each
    chunk_total: IntArray  # [chunks], tokens of each after the step
    max_decode_len: int  # at least the total_len of all rows with one new token; 0: none
    tiling: "Tiling | None" = None
    multiprocessors: int | None = None  # None: those of the device. Results do not depend on it.
    spans: IntArray = field(default_factory=lambda: NO_SPANS)  # on the host
    # By how many tokens a tile has, and whether layers have spans.
    _tiles: dict[tuple[int, bool], Tensor] = field(default_factory=dict)
    _contexts: dict[tuple[int, bool], IntArray] = field(default_factory=dict)

    def attend(
        self,
        layer: int,
        q: Tensor,  # [tokens, heads, head_dim]
        k: Tensor,  # [tokens, kv_heads, head_dim], rotary embedding applied
        v: Tensor,  # [tokens, kv_heads, head_dim]
        params: AttentionParams,
    ) -> Tensor:
        self.store(layer, k, v)
        return self._attend(layer, q, params)

    def store(self, layer: int, k: Tensor, v: Tensor) -> None:
        from deployments.engine.kernels.gpu.attention_ops import store

        store(k, v, *self._pages(layer), self.slots, FP8_SCALES)

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,  # [tokens, heads + 2 * kv_heads, head_dim], contiguous
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,  # of queries and keys
        params: AttentionParams,
    ) -> Tensor:
        return self._attend(layer, self.store_qkv(layer, qkv, rotary, norms), params)

    def store_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
    ) -> Tensor:
        """Norms, rotary embedding and the store are one launch. Returns the queries [tokens, heads,
        head_dim]."""
        from deployments.engine.kernels.gpu.layer_ops import rotary_and_store

        pages = self._pages(layer)
        return rotary_and_store(qkv, rotary, norms, *pages, self.slots, FP8_SCALES)

    def _pages(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.storage.layers[layer]

    def _attend(self, layer: int, q: Tensor, params: AttentionParams) -> Tensor:
        from deployments.engine.kernels.gpu.attention_ops import Attention

        value_dim = self.storage.layout[layer].value_dim
        tiling = self.tiling or tiling_of(q.dtype, q.shape[-1], q.device, value_dim)
        k_pages, v_pages = self._pages(layer)
        longest = self._longest_span(params.window) if len(self.spans) else 0
        attention = Attention(k_pages, v_pages, *params, FP8_SCALES, tiling, value_dim, longest)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if len(self.chunk_rows):
            out = self._attend_chunks(attention, out, q)
        if self.max_decode_len:
            attention.decodes(
                out, q, self.page_table, self.total_len, self.starts, self.max_decode_len
            )
        return out

    def _attend_chunks(self, attention: "Attention", out: Tensor, q: Tensor) -> Tensor:
        """Returns `out` with the results of rows that have more than one new token."""
        tokens, device = attention.tile_tokens(q.shape[1]), self.slots.device
        key = tokens, attention.span_tokens > 0
        if key not in self._tiles:
            tiles, self._contexts[key] = self._cut_chunks(*key)
            self._tiles[key] = to_device(tiles, device)
        attention.chunks(
            out, q, self.page_table, self.total_len, self.starts, self._tiles[key],
            self._contexts[key], self.multiprocessors or multiprocessors_of(device),
        )  # fmt: skip
        return out

    def _longest_span(self, window: int | None) -> int:
        spans = spans_within(self.spans, window)
        return int((spans[:, 2] - spans[:, 1]).max(initial=0))

    def _cut_chunks(self, tokens: int, has_spans: bool) -> tuple[IntArray, IntArray]:
        """Tiles of at most `tokens` tokens, and how many keys each may see."""
        rows = self.chunk_rows, self.chunk_len, self.chunk_total
        if has_spans:
            return tile_spans(*rows, tokens, self.spans)
        tiles = tile(*rows, tokens)
        before = self.chunk_total - self.chunk_len
        row = np.searchsorted(self.chunk_rows, tiles[:, 0])
        return tiles, before[row] + tiles[:, 1] + tokens


def plan_triton_attention(
    storage: Storage,
    page_table: IntArray,  # [rows, pages]
    total_len: IntArray,  # [rows], tokens after the step
    new_len: IntArray,  # [rows]
    tiling: "Tiling | None" = None,
    layer: int = 0,
    multiprocessors: int | None = None,
    spans: IntArray = NO_SPANS,
) -> TritonAttention:
    """Lays out a flat batch for the attention kernels, with one copy to the device. It is for all
    layers with the group and the page stride of `layer`."""
    slots = token_slots(storage, layer, page_table, total_len, new_len)
    lengths = total_len, new_len
    return attention_at(storage, page_table, slots, *lengths, tiling, multiprocessors, spans)


def attention_at(
    storage: Storage,
    page_table: IntArray | Tensor,  # [rows, pages], on the host or on the device
    slots: IntArray,  # [tokens], of the new tokens
    total_len: IntArray,
    new_len: IntArray,
    tiling: "Tiling | None" = None,
    multiprocessors: int | None = None,
    spans: IntArray = NO_SPANS,
) -> TritonAttention:
    """The same, for layers with these slots."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), new_len.cumsum()])
    on_host = [page_table.ravel()] if isinstance(page_table, np.ndarray) else []
    parts = [total_len, starts, slots, *on_host]
    flat = to_device(np.concatenate(parts), storage.device)
    total, row_starts, new_slots, *copied = torch.split(flat, [len(part) for part in parts])
    if isinstance(page_table, np.ndarray):
        page_table = copied[0].view(page_table.shape)
    chunks = (new_len > 1).nonzero()[0]
    return TritonAttention(
        storage=storage,
        page_table=page_table,
        total_len=total,
        starts=row_starts,
        slots=new_slots,
        chunk_rows=chunks,
        chunk_len=new_len[chunks],
        chunk_total=total_len[chunks],
        max_decode_len=int(total_len[new_len == 1].max(initial=0)),
        tiling=tiling,
        multiprocessors=multiprocessors,
        spans=spans,
    )


@cache
def tiling_of(
    dtype: torch.dtype, head_dim: int, device: torch.device, value_dim: int | None = None
) -> "Tiling":
    """The largest tiling that the device's shared memory holds."""
    from deployments.engine.kernels.gpu.attention_ops import tiling_for

    shared = DEFAULT_SHARED_BYTES
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        shared = getattr(properties, "shared_memory_per_block_optin", DEFAULT_SHARED_BYTES)
    return tiling_for(dtype, head_dim, shared, value_dim)


@cache
def multiprocessors_of(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
