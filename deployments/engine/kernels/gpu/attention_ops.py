"""Launches the kernels of attention over pages, in blocks that fit the device."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from deployments.engine.kernels.gpu import attention_kernels as paged_kernel

MAX_SPLITS = 32  # of one context
FP8_MAX = 448.0  # of e4m3


@dataclass(frozen=True, slots=True)
class Tiling:
    """Block sizes, all powers of two; results of one row differ between tilings, by rounding."""

    queries: int = 128  # of a chunk's program: tokens times the heads that share their keys
    keys: int = 64
    split: int = 256  # keys that one program of a decode visits at least
    chunk_warps: int = 8
    decode_warps: int = 4
    stages: int = 3


_TILINGS = (
    Tiling(),
    Tiling(stages=2),
    Tiling(queries=64, keys=32),
    Tiling(queries=64, keys=32, stages=2),
    Tiling(queries=32, keys=16, chunk_warps=4, stages=2),
)
# Without matrix units the factors are in registers, too: larger blocks were seen to spill.
_PLAIN = Tiling(queries=16, keys=16, chunk_warps=4, stages=2)


def tiling_for(dtype: torch.dtype, head_dim: int, shared_bytes: int) -> Tiling:
    """The largest that fits a multiprocessor: its shared memory, and 64 registers for sums."""
    dim = _padded(head_dim)
    if dtype == torch.float32:
        return _PLAIN
    for tiling in _TILINGS:
        needed = dim * dtype.itemsize * (tiling.queries + 2 * tiling.keys * tiling.stages)
        if needed < shared_bytes and tiling.queries * dim <= 64 * 32 * tiling.chunk_warps:
            return tiling
    return _TILINGS[-1]


def store(
    k: Tensor,  # [tokens, kv_heads, head_dim]
    v: Tensor,
    k_pages: Tensor,  # [pages, page_size, kv_heads, head_dim]
    v_pages: Tensor,
    slots: Tensor,  # [tokens] int64, page * page_size + place; below 0 for none
    scales: tuple[float, float],
) -> None:
    """Writes new keys and values, in a launch of its own.

    Programs of one launch may run in any order: attention could not count on seeing them.
    """
    k, v = _dense(k), _dense(v)
    tokens, kv_heads, dim = k.shape
    paged_kernel.store[(tokens,)](
        k, v, k_pages, v_pages, slots, *scales,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        KV_HEADS=kv_heads, DIM=dim, SIZE=triton.next_power_of_2(kv_heads * dim),
        FP8=k_pages.dtype == torch.float8_e4m3fn, LIMIT=FP8_MAX, enable_fp_fusion=True,
    )  # fmt: skip


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention: its pages, and how scores are made of queries and keys.

    scales: what keys and values were divided by when they were stored in fp8, else 1.
    """

    k_pages: Tensor  # [pages, page_size, kv_heads, head_dim]
    v_pages: Tensor
    scale: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None  # [heads]
    scales: tuple[float, float]
    tiling: Tiling

    def tile_tokens(self, heads: int) -> int:
        """New tokens of a row that one program of `chunks` takes."""
        share: int = triton.next_power_of_2(heads // self.k_pages.shape[2])
        return max(1, max(16, self.tiling.queries) // share)

    def chunks(
        self,
        out: Tensor,  # [tokens, heads, head_dim]; rows without tiles are left alone
        q: Tensor,
        table: Tensor,  # [rows, pages]
        total_len: Tensor,  # [rows]
        starts: Tensor,  # [rows + 1], each row's first token in q
        tiles: Tensor,  # [tiles, 2] int32: a row, and the first of its new tokens
    ) -> None:
        q = _dense(q)
        _, heads, dim = q.shape
        kv_heads, share = self._shares(heads)
        share_pad = triton.next_power_of_2(share)
        # Of the two loops over keys fusion would make other scores, and a prompt that is cut
        # elsewhere would have its keys in the other one.
        paged_kernel.chunks[(len(tiles), kv_heads)](
            out, q, self.k_pages, self.v_pages, table, total_len, starts, tiles,
            q if self.sinks is None else self.sinks,
            self.scale * self.scales[0], self.softcap or 1.0, self.scales[1],
            q.stride(0), q.stride(1), table.stride(0),
            HEADS=heads, KV_HEADS=kv_heads, SHARE=share, SHARE_PAD=share_pad,
            DIM=dim, DIM_PAD=_padded(dim), PAGE=self.k_pages.shape[1],
            QUERIES=self.tile_tokens(heads) * share_pad, KEYS=self.tiling.keys,
            WINDOW=self.window or 0, SOFTCAP=self.softcap is not None,
            SINKS=self.sinks is not None,
            FACTOR=_factor(q.dtype),
            num_warps=self.tiling.chunk_warps, num_stages=self.tiling.stages,
            enable_fp_fusion=False,
        )  # fmt: skip

    def decodes(
        self,
        out: Tensor,  # [tokens, heads, head_dim]; rows with other than one new token are left alone
        q: Tensor,
        table: Tensor,  # [rows, pages]
        total_len: Tensor,  # [rows]; 0 for a padding row
        starts: Tensor,  # [rows + 1]
        longest: int,  # at least the total_len of every row with one new token
    ) -> None:
        q = _dense(q)
        _, heads, dim = q.shape
        rows = len(total_len)
        kv_heads, share = self._shares(heads)
        if self.window is not None:
            longest = min(longest, self.window + self.tiling.keys)
        n_splits = max(1, min(MAX_SPLITS, triton.cdiv(longest, self.tiling.split)))
        dim_pad = _padded(dim)
        parts = q.new_empty(rows, heads, n_splits, dim_pad, dtype=torch.float32)
        peaks, weights = q.new_empty(2, rows, heads, n_splits, dtype=torch.float32)
        cut = {
            "HEADS": heads, "DIM": dim, "DIM_PAD": dim_pad, "KEYS": self.tiling.keys,
            "SPLIT": self.tiling.split, "SPLITS": MAX_SPLITS, "WINDOW": self.window or 0,
        }  # fmt: skip
        paged_kernel.decodes[(rows, kv_heads, n_splits)](
            parts, peaks, weights, q, self.k_pages, self.v_pages, table, total_len, starts,
            q if self.sinks is None else self.sinks,
            self.scale * self.scales[0], self.softcap or 1.0,
            q.stride(0), q.stride(1), table.stride(0), n_splits,
            **cut, KV_HEADS=kv_heads, SHARE=share, PAGE=self.k_pages.shape[1],
            QUERIES=max(16, triton.next_power_of_2(share)),
            SOFTCAP=self.softcap is not None, SINKS=self.sinks is not None,
            FACTOR=_factor(q.dtype),
            num_warps=self.tiling.decode_warps, num_stages=self.tiling.stages,
            enable_fp_fusion=True,
        )  # fmt: skip
        paged_kernel.merge[(rows, heads)](
            out, parts, peaks, weights, total_len, starts, self.scales[1], n_splits, **cut,
            num_warps=1, enable_fp_fusion=True,
        )  # fmt: skip

    def _shares(self, heads: int) -> tuple[int, int]:
        kv_heads = self.k_pages.shape[2]
        return kv_heads, heads // kv_heads


def _factor(dtype: torch.dtype) -> tl.dtype:
    """What is multiplied; the interpreter takes the bits of a bfloat16 for an integer."""
    if triton.knobs.runtime.interpret:
        return tl.float32
    return {torch.float32: tl.float32, torch.float16: tl.float16}.get(dtype, tl.bfloat16)


def _padded(dim: int) -> int:
    return max(16, 1 << (dim - 1).bit_length())
