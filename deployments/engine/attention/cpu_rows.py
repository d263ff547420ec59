"""The rows of a batch whose attention our CPU kernels compute."""

import sys
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from deployments.engine.attention.interface import AttentionParams
from deployments.engine.attention.tiles import tile
from deployments.engine.kernels.cpu.attention_kernels import (
    KEYS_PER_SPLIT,
    decode_kernel,
    merge_kernel,
)
from deployments.engine.kernels.cpu.chunk_kernels import chunk_kernel
from deployments.engine.kernels.cpu.dispatch import address_of, contiguous_rows, empty
from deployments.engine.kernels.cpu.simd import PACK
from kv.arrays import IntArray

# With this many splits for each thread, one task computes all heads of a split: it then reads
# whole pages in order. With fewer splits, each task computes one group of heads.
MIN_SPLITS_PER_THREAD = 4
MAX_QUERIES_PER_TASK = 192  # tokens times the query heads that share a KV head
MIN_TASKS_PER_THREAD = 3  # as long as there are enough queries
NO_WINDOW = (1 << 31) - 1  # in tokens, longer than any context


class DecodeRows:
    """New tokens of a batch that are computed one by one. Each token is a row here."""

    def __init__(
        self,
        token_index: IntArray,  # [rows], the tokens' indices in the flat batch
        page_table: IntArray,  # [rows, pages], each row contiguous
        total_len: IntArray,  # [rows], tokens up to and including this one
    ) -> None:
        self.token_index, self.page_table, self.total_len = token_index, page_table, total_len

    @cached_property
    def _n_tokens(self) -> int:
        return int(self.total_len.sum())

    @cached_property
    def _addresses(self) -> tuple[int, int, int]:
        # NumPy takes long to give an address: we ask once a step, not once a layer.
        columns = self.token_index, self.page_table, self.total_len
        tokens, table, lengths = (column.ctypes.data for column in columns)
        return tokens, table, lengths

    def attend(
        self, out: Tensor, q: Tensor, keys: Tensor, values: Tensor, params: AttentionParams
    ) -> None:
        """Writes the results of these rows into `out`. The shapes are those of `attend` below."""
        _, heads, dim = q.shape
        _, page_size, kv_heads, _ = keys.shape
        n, width = self.page_table.shape
        sinks, window, group = _sinks(params, q), _window(params), heads // kv_heads
        slopes = _slopes(params)
        splits = -(-width * page_size // KEYS_PER_SPLIT)
        parts = empty((n, splits * heads * (2 + dim)), torch.float32) if splits > 1 else None
        tokens, table, lengths = self._addresses
        decode_kernel(dim, group).call(
            self._n_tokens * heads * dim,
            q=q.data_ptr(),
            q_token_stride=q.stride(0),
            q_head_stride=q.stride(1),
            out=out.data_ptr(),
            k_pages=keys.data_ptr(),
            v_pages=values.data_ptr(),
            rows=n,
            tokens=tokens,
            page_table=table,
            page_table_stride=self.page_table.strides[0] // self.page_table.itemsize,
            lengths=lengths,
            kv_heads=kv_heads,
            page_size=page_size,
            page_bytes=keys.stride(0) * keys.itemsize,
            window=window,
            sinks=address_of(sinks),
            slopes=address_of(slopes),
            scale=params.scale,
            softcap=params.softcap or 0.0,
            many_splits=MIN_SPLITS_PER_THREAD * torch.get_num_threads(),
            parts=address_of(parts),
            max_splits=splits,
        )
        if parts is not None:
            merge_kernel(dim, group).call(
                n * splits * heads * dim,
                out=out.data_ptr(),
                parts=parts.data_ptr(),
                max_splits=splits,
                rows=n,
                tokens=tokens,
                lengths=lengths,
                kv_heads=kv_heads,
                window=window,
            )


class ChunkRows:
    """Rows with several new tokens each. Every key is read once for many of these tokens."""

    def __init__(
        self,
        starts: IntArray,  # [rows], indices of their first new tokens in the flat batch
        page_table: IntArray,  # [rows, pages], contiguous
        total_len: IntArray,  # [rows], tokens after the step
        new_len: IntArray,  # [rows]
    ) -> None:
        self._rows = starts, total_len, new_len
        self._n_new = int(new_len.sum())
        self._page_table = page_table
        self._tiles: dict[int, IntArray] = {}  # by the most tokens of a tile

    def attend(
        self, out: Tensor, q: Tensor, keys: Tensor, values: Tensor, params: AttentionParams
    ) -> None:
        """Writes the results of these rows into `out`. The shapes are those of `attend` below."""
        _, heads, dim = q.shape
        _, page_size, kv_heads, _ = keys.shape
        tokens = self._tile_tokens(heads // kv_heads, kv_heads)
        tiles, sinks, slopes = self._tiles_of(tokens), _sinks(params, q), _slopes(params)
        chunk_kernel(dim, heads // kv_heads).call(
            sys.maxsize,
            q=q.data_ptr(),
            q_token_stride=q.stride(0),
            q_head_stride=q.stride(1),
            out=out.data_ptr(),
            k_pages=keys.data_ptr(),
            v_pages=values.data_ptr(),
            n_pieces=len(tiles),
            pieces=tiles.ctypes.data,
            page_table=self._page_table.ctypes.data,
            page_table_stride=self._page_table.shape[1],
            kv_heads=kv_heads,
            page_size=page_size,
            page_bytes=keys.stride(0) * keys.itemsize,
            window=_window(params),
            sinks=address_of(sinks),
            slopes=address_of(slopes),
            scale=params.scale,
            softcap=params.softcap or 0.0,
            max_tokens=tokens,
        )

    def _tile_tokens(self, group: int, kv_heads: int) -> int:
        """The most tokens of a tile. Short batches get small tiles, so that no thread idles."""
        queries, min_tasks = MAX_QUERIES_PER_TASK, MIN_TASKS_PER_THREAD * torch.get_num_threads()
        while queries > PACK and self._n_new * group * kv_heads < min_tasks * queries:
            queries //= 2
        return max(1, queries // group)

    def _tiles_of(self, tokens: int) -> IntArray:
        """Tiles of at most `tokens` tokens, as `chunk_kernel` takes them.

        [tiles, 4]: index of the first token in the flat batch, its position in the row, number of
        tokens, row.
        """
        if tokens not in self._tiles:
            starts, total_len, new_len = self._rows
            row, first = tile(np.arange(len(starts)), new_len, total_len, tokens).T
            position = total_len[row] - new_len[row] + first
            n = np.minimum(tokens, new_len[row] - first)
            self._tiles[tokens] = np.stack([starts[row] + first, position, n, row], axis=1)
        return self._tiles[tokens]


def attend(
    batch: Sequence[DecodeRows | ChunkRows],
    q: Tensor,  # [tokens, heads, head_dim]
    keys: Tensor,  # [pages, page_size, kv_heads, head_dim]
    values: Tensor,  # [pages, page_size, kv_heads, head_dim]
    params: AttentionParams,
) -> Tensor:
    """Attention of the tokens that belong to the rows of `batch`.

    Returns [tokens, heads, head_dim]; tokens of no such row are left uninitialized. Raises
    ValueError if queries and pages have different types or head sizes, or if the number of heads
    is no multiple of the KV heads.
    """
    heads, dim = q.shape[1:]
    if q.dtype is not keys.dtype or dim != keys.shape[3] or heads % keys.shape[2]:
        raise ValueError(f"{heads} heads of {dim} {q.dtype} for pages of {keys.shape[2:]}")
    q, out = contiguous_rows(q), empty(q.shape, q.dtype)
    for rows in batch:
        rows.attend(out, q, keys, values, params)
    return out


def _window(params: AttentionParams) -> int:
    return NO_WINDOW if params.window is None else min(params.window, NO_WINDOW)


def _sinks(params: AttentionParams, q: Tensor) -> Tensor | None:
    return None if params.sinks is None else params.sinks.to(q.dtype).contiguous()


def _slopes(params: AttentionParams) -> Tensor | None:
    return None if params.slopes is None else params.slopes.float().contiguous()
