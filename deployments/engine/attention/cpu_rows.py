"""The rows of a batch that our CPU kernels attend for."""

import sys
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
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
from deployments.engine.kernels.cpu.matmul_ir import PACK

MANY_SPLITS = 4  # for each thread: one is a task for all heads, whose pages come in one piece
PIECE_ROWS = 192  # queries, of all heads that share keys, that a task attends for
TASKS_EACH = 3  # of the threads, at least, where there are enough queries
ALL = (1 << 31) - 1  # tokens: no window


class DecodeRows:
    """New tokens of a batch that are attended for one by one, each a row."""

    def __init__(
        self,
        places: NDArray[np.int64],  # [rows], of their tokens in the flat batch
        page_table: NDArray[np.int64],  # [rows, pages], contiguous
        total_len: NDArray[np.int64],  # [rows]
    ) -> None:
        self.places, self.page_table, self.total_len = places, page_table, total_len
        self._n_tokens = int(total_len.sum())
        # Asked of numpy once a step.
        self._addresses = places.ctypes.data, page_table.ctypes.data, total_len.ctypes.data

    def attend(
        self, out: Tensor, q: Tensor, keys: Tensor, values: Tensor, params: AttentionParams
    ) -> None:
        """As `attend`, of these rows."""
        _, heads, dim = q.shape
        _, page_size, kv_heads, _ = keys.shape
        n, width = self.page_table.shape
        sinks, window, group = _sinks(params, q), _window(params), heads // kv_heads
        splits = -(-width * page_size // KEYS_PER_SPLIT)
        parts = empty((n, splits * heads * (2 + dim)), torch.float32) if splits > 1 else None
        places, table, lengths = self._addresses
        decode_kernel(dim, group).call(
            self._n_tokens * heads * dim,
            q=q.data_ptr(),
            q_token_stride=q.stride(0),
            q_head_stride=q.stride(1),
            out=out.data_ptr(),
            k_pages=keys.data_ptr(),
            v_pages=values.data_ptr(),
            rows=n,
            tokens=places,
            page_table=table,
            page_table_stride=width,
            lengths=lengths,
            kv_heads=kv_heads,
            page_size=page_size,
            window=window,
            sinks=address_of(sinks),
            scale=params.scale,
            softcap=params.softcap or 0.0,
            many_splits=MANY_SPLITS * torch.get_num_threads(),
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
                tokens=places,
                lengths=lengths,
                kv_heads=kv_heads,
                window=window,
            )


class ChunkRows:
    """Rows of a batch with several new tokens each, which read every key once for many of them."""

    def __init__(
        self,
        places: NDArray[np.int64],  # [rows], of their first tokens in the flat batch
        page_table: NDArray[np.int64],  # [rows, pages], contiguous
        total_len: NDArray[np.int64],  # [rows]
        new_len: NDArray[np.int64],  # [rows]
    ) -> None:
        self._rows = places, total_len, new_len
        self._n_new = int(new_len.sum())
        self._page_table = page_table
        self._pieces: dict[int, NDArray[np.int64]] = {}  # by the tokens of each

    def attend(
        self, out: Tensor, q: Tensor, keys: Tensor, values: Tensor, params: AttentionParams
    ) -> None:
        """As `attend`, of these rows."""
        _, heads, dim = q.shape
        _, page_size, kv_heads, _ = keys.shape
        tokens = self._piece(heads // kv_heads, kv_heads)
        pieces, sinks = self._cut(tokens), _sinks(params, q)
        chunk_kernel(dim, heads // kv_heads).call(
            sys.maxsize,
            q=q.data_ptr(),
            q_token_stride=q.stride(0),
            q_head_stride=q.stride(1),
            out=out.data_ptr(),
            k_pages=keys.data_ptr(),
            v_pages=values.data_ptr(),
            n_pieces=len(pieces),
            pieces=pieces.ctypes.data,
            page_table=self._page_table.ctypes.data,
            page_table_stride=self._page_table.shape[1],
            kv_heads=kv_heads,
            page_size=page_size,
            window=_window(params),
            sinks=address_of(sinks),
            scale=params.scale,
            softcap=params.softcap or 0.0,
            max_tokens=tokens,
        )

    def _piece(self, group: int, kv_heads: int) -> int:
        """Tokens of one: fewer where there would be nothing to do for some of the threads."""
        rows, least_tasks = PIECE_ROWS, TASKS_EACH * torch.get_num_threads()
        while rows > PACK and self._n_new * group * kv_heads < least_tasks * rows:
            rows //= 2
        return max(1, rows // group)

    def _cut(self, tokens: int) -> NDArray[np.int64]:
        """Pieces of up to so many tokens, as `chunk_kernel` takes them."""
        if tokens not in self._pieces:
            places, total_len, new_len = self._rows
            row, first = tile(np.arange(len(places)), new_len, total_len, tokens).T
            position = total_len[row] - new_len[row] + first
            n = np.minimum(tokens, new_len[row] - first)
            self._pieces[tokens] = np.stack([places[row] + first, position, n, row], axis=1)
        return self._pieces[tokens]


def attend(
    batch: Sequence[DecodeRows | ChunkRows],
    q: Tensor,  # [tokens, heads, dim]
    keys: Tensor,  # [pages, page size, kv heads, dim]
    values: Tensor,
    params: AttentionParams,
) -> Tensor:
    """[tokens, heads, dim], of which the rows' places are written.

    Raises ValueError for what does not fit together.
    """
    heads, dim = q.shape[1:]
    if q.dtype is not keys.dtype or dim != keys.shape[3] or heads % keys.shape[2]:
        raise ValueError(f"{heads} heads of {dim} {q.dtype} for pages of {keys.shape[2:]}")
    q, out = contiguous_rows(q), empty(q.shape, q.dtype)
    for rows in batch:
        rows.attend(out, q, keys, values, params)
    return out


def _window(params: AttentionParams) -> int:
    return ALL if params.window is None else min(params.window, ALL)


def _sinks(params: AttentionParams, q: Tensor) -> Tensor | None:
    return None if params.sinks is None else params.sinks.to(q.dtype).contiguous()
