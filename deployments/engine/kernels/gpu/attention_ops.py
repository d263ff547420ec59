"""Launches the kernels of attention over KV pages, in blocks that fit the device."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from deployments.engine.kernels.gpu.attention_kernels import (
    Scoring,
    Shape,
    Splits,
    decode_kernel,
    merge_kernel,
    store_kernel,
)
from deployments.engine.kernels.gpu.chunk_kernels import chunk_kernel, chunk_merge_kernel
from kv.arrays import IntArray

MAX_SPLITS = 32  # of one context
FP8_MAX = 448.0  # the largest number of e4m3
MIN_QUERIES = 16  # of a block: matrix units take no fewer
MAX_ACC_REGISTERS = 64  # of a thread, for sums
WARP = 32  # threads
MERGED_QUERIES = 8  # of a tile, by one program of `chunk_merge_kernel`
MERGE_WARPS = 4  # of it
MAX_PART_BYTES = 128 << 20  # of the sums over splits that a launch leaves for the next one


@dataclass(frozen=True, slots=True)
class Tiling:
    """Block sizes, all powers of two; results of one row differ between tilings, by rounding."""

    queries: int = 128  # of a chunk's program: tokens times the heads that share a KV head
    keys: int = 128
    min_split_keys: int = 256  # that one program of a decode reads
    decode_heads: int = 128  # that one program of a decode takes at most
    chunk_split_keys: int = 4096  # whose sums a chunk makes apart
    chunk_warps: int = 8
    decode_warps: int = 4
    stages: int = 3


# From the largest to the smallest.
_TILINGS = (
    Tiling(),
    Tiling(keys=64),
    Tiling(keys=64, stages=2),
    Tiling(queries=64, keys=32),
    Tiling(queries=64, keys=32, stages=2),
    Tiling(queries=32, keys=16, chunk_warps=4, stages=2),
)
# Without matrix units the factors are in registers, too: larger blocks were seen to spill.
_FLOAT32_TILING = Tiling(queries=16, keys=16, decode_heads=16, chunk_warps=4, stages=2)


# Of latents, whose sums are wide: they may fill all registers. One block is keys and values.
_LATENT_TILINGS = (
    Tiling(queries=64, keys=32, decode_heads=64, decode_warps=8, stages=2),
    Tiling(queries=32, keys=32, decode_heads=32, decode_warps=8, stages=2),
    Tiling(queries=16, keys=16, decode_heads=16, chunk_warps=4, stages=2),
)


def tiling_for(
    dtype: torch.dtype, head_dim: int, shared_bytes: int, value_dim: int | None = None
) -> Tiling:
    """The largest whose blocks fit the shared memory of a multiprocessor, and whose sums fit
    registers. `value_dim` is that of values in keys.
    """
    if dtype == torch.float32:
        return _FLOAT32_TILING
    if value_dim is not None:
        dim = _padded(value_dim) + _padded(head_dim - value_dim)
        for tiling in _LATENT_TILINGS:
            needed = dim * dtype.itemsize * (tiling.queries + tiling.keys * tiling.stages)
            if needed < shared_bytes:
                return tiling
        return _LATENT_TILINGS[-1]
    dim = _padded(head_dim)
    for tiling in _TILINGS:
        needed = dim * dtype.itemsize * (tiling.queries + 2 * tiling.keys * tiling.stages)
        acc_registers = tiling.queries * dim // (tiling.chunk_warps * WARP)
        if needed < shared_bytes and acc_registers <= MAX_ACC_REGISTERS:
            return tiling
    return _TILINGS[-1]


def store(
    k: Tensor,  # [tokens, kv_heads, head_dim]
    v: Tensor,
    k_pages: Tensor,  # [pages, page_size, kv_heads, head_dim]
    v_pages: Tensor,
    slots: Tensor,  # [tokens] int64, page * page stride + offset; below 0 for none
    scales: tuple[float, float],  # what keys and values are divided by in fp8
) -> None:
    """Writes new keys and values to their pages.

    It is a launch of its own: programs of one launch run in any order, and attention would not
    find all new keys.
    """
    k, v = _dense(k), _dense(v)
    tokens, kv_heads, dim = k.shape
    store_kernel[(tokens,)](
        k, v, k_pages, v_pages, slots, *scales,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        KV_HEADS=kv_heads, DIM=dim, SIZE=triton.next_power_of_2(kv_heads * dim),
        HAS_VALUES=v_pages is not k_pages,
        FP8=k_pages.dtype == torch.float8_e4m3fn, FP8_MAX=FP8_MAX, enable_fp_fusion=True,
    )  # fmt: skip


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


_COMPILED: set[tuple[object, ...]] = set()  # kinds of attention of which one chunk was split


def tiles_to_split(keys: IntArray, min_keys: int, n_programs: int, multiprocessors: int) -> int:
    """How many tiles have more keys than `min_keys` and than a multiprocessor's share of all keys,
    with `n_programs` a tile.

    `keys` [tiles] descend. All others would wait for the programs of such a tile.
    """
    if keys[0] <= min_keys:
        return 0
    share = int(keys.sum()) * n_programs / multiprocessors
    return int((keys > max(min_keys, share)).sum())


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention: its pages, and how scores are made of queries and keys."""

    k_pages: Tensor  # [pages, page_size, kv_heads, head_dim]
    v_pages: Tensor
    scale: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None  # [heads]
    slopes: Tensor | None  # [heads]
    scales: tuple[float, float]  # what stored keys and values were divided by in fp8, else 1
    tiling: Tiling
    value_dim: int | None = None  # values are the first so many numbers of keys, if it is given
    # Tokens of the longest span whose tokens see each other, in a chunk; 0: there is none.
    span_tokens: int = 0

    def tile_tokens(self, heads: int) -> int:
        """New tokens of a row that one program of `chunks` takes."""
        queries = max(MIN_QUERIES, self.tiling.queries)
        group: int = triton.next_power_of_2(heads // self.k_pages.shape[2])
        return queries // min(queries, group)

    def chunks(
        self,
        out: Tensor,  # [tokens, heads, head_dim]; rows without tiles are left alone
        q: Tensor,
        table: Tensor,  # [rows, pages]
        total_len: Tensor,  # [rows]
        starts: Tensor,  # [rows + 1], each row's first token in q
        tiles: Tensor,  # [tiles, 2] int32, as `tile` makes them, or [tiles, 4] as `tile_spans`
        contexts: IntArray,  # [tiles] on the host, descending: at least the tokens up to its end
        multiprocessors: int,  # of the device
    ) -> None:
        """Results do not depend on `multiprocessors`, nor on the order of the launches."""
        q = _dense(q)
        tokens = self.tile_tokens(q.shape[1])
        keys = contexts
        if self.window is not None:
            keys = np.minimum(contexts, self.window + tokens + self.span_tokens)
        n_split, n_splits = self._split_tiles(keys, q, multiprocessors)
        rows = table, total_len, starts
        if not n_split and self._is_first_of_kind(q):
            self._chunks(out, q, *rows, tiles[:1], max(1, self._n_chunk_splits(keys)))
        if n_split:
            self._chunks(out, q, *rows, tiles[:n_split], n_splits)
        if n_split < len(tiles):
            self._chunks(out, q, *rows, tiles[n_split:], 0)

    def _split_tiles(self, keys: IntArray, q: Tensor, multiprocessors: int) -> tuple[int, int]:
        """How many of the first tiles are split, and the most splits of one."""
        shape, split_keys = self._chunk_shape(q), self.tiling.chunk_split_keys
        n_programs = shape.kv_heads * shape.blocks
        n = tiles_to_split(keys, split_keys, n_programs, multiprocessors)
        if n == 0:
            return 0, 0
        n_splits = self._n_chunk_splits(keys)
        tile_bytes = n_splits * n_programs * self._queries(q) * shape.dim_padded * 4
        return min(n, MAX_PART_BYTES // tile_bytes), n_splits

    def _n_chunk_splits(self, keys: IntArray) -> int:
        """Returns the most splits of one tile. A window begins anywhere in a split."""
        most: int = triton.cdiv(int(keys[0]), self.tiling.chunk_split_keys)
        return most + (self.window is not None)

    def _is_first_of_kind(self, q: Tensor) -> bool:
        """Whether a split chunk of this kind may have to be compiled: no request is to wait for
        that."""
        scoring = self._chunk_scoring(q)
        kind = self._chunk_shape(q), scoring, self.tiling, self.k_pages.dtype, q.device
        is_first = kind not in _COMPILED
        _COMPILED.add(kind)
        return is_first

    def _chunk_shape(self, q: Tensor) -> Shape:
        return self._shape(q, max(MIN_QUERIES, self.tiling.queries))

    def _queries(self, q: Tensor) -> int:
        return self.tile_tokens(q.shape[1]) * self._chunk_shape(q).group_padded

    def _chunks(
        self, out: Tensor, q: Tensor, table: Tensor, total_len: Tensor, starts: Tensor,
        tiles: Tensor, n_splits: int,
    ) -> None:  # fmt: skip
        """Launches a program for each of `n_splits` splits of a tile, or for a tile with 0."""
        shape, queries = self._chunk_shape(q), self._queries(q)
        split_keys = self.tiling.chunk_split_keys
        n_programs = shape.kv_heads * shape.blocks
        sinks, *scores = self._scores(q)
        parts = part_max = part_sum = q  # not read
        if n_splits:
            sizes = len(tiles), n_programs, n_splits, queries
            parts = q.new_empty(*sizes, shape.dim_padded, dtype=torch.float32)
            part_max, part_sum = q.new_empty(2, *sizes, dtype=torch.float32)
        # Fusion would give other scores in one of the two loops over keys than in the other, and
        # a prompt that is cut elsewhere has its keys in the other one.
        chunk_kernel[(len(tiles), n_programs, max(1, n_splits))](
            out, parts, part_max, part_sum, q, self.k_pages, self.v_pages, table, total_len, starts,
            tiles, sinks, *scores, self.scales[1], q.stride(0), q.stride(1), table.stride(0),
            n_splits, QUERIES=queries, KEYS=self.tiling.keys, SPLIT_KEYS=split_keys,
            IS_SPLIT=n_splits > 0, SHAPE=shape, SCORING=self._chunk_scoring(q),
            num_warps=self.tiling.chunk_warps, num_stages=self.tiling.stages,
            enable_fp_fusion=False,
        )  # fmt: skip
        if n_splits:
            chunk_merge_kernel[(len(tiles), n_programs, queries // MERGED_QUERIES)](
                out, parts, part_max, part_sum, total_len, starts, tiles, sinks, self.scales[1],
                n_splits, QUERIES=queries, LANES=MERGED_QUERIES, SPLIT_KEYS=split_keys,
                SHAPE=shape, SCORING=self._chunk_scoring(q), num_warps=MERGE_WARPS,
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
        rows, heads = len(total_len), q.shape[1]
        shape, n_splits = self._shape(q, self.tiling.decode_heads), self._n_splits(longest)
        splits = _splits(self.tiling)
        parts = q.new_empty(rows, heads, n_splits, shape.dim_padded, dtype=torch.float32)
        part_max, part_sum = q.new_empty(2, rows, heads, n_splits, dtype=torch.float32)
        decode_kernel[(rows, shape.kv_heads * shape.blocks, n_splits)](
            parts, part_max, part_sum, q, self.k_pages, self.v_pages, table, total_len, starts,
            *self._scores(q), q.stride(0), q.stride(1), table.stride(0), n_splits,
            QUERIES=max(MIN_QUERIES, shape.group_padded),
            SHAPE=shape, SCORING=self._scoring(q), SPLITS=splits,
            num_warps=self.tiling.decode_warps, num_stages=self.tiling.stages,
            enable_fp_fusion=True,
        )  # fmt: skip
        merge_kernel[(rows, heads)](
            out, parts, part_max, part_sum, total_len, starts, self.scales[1], n_splits,
            WINDOW=self.window or 0, SHAPE=shape, SPLITS=splits,
            num_warps=1, enable_fp_fusion=True,
        )  # fmt: skip

    def _n_splits(self, longest: int) -> int:
        if self.window is not None:
            longest = min(longest, self.window + self.tiling.keys)
        needed: int = triton.cdiv(longest, self.tiling.min_split_keys)
        return max(1, min(MAX_SPLITS, needed))

    def _scores(self, q: Tensor) -> tuple[Tensor, Tensor, float, float]:
        """Sinks and slopes, which are not read where there are none, scale and softcap."""
        sinks = q if self.sinks is None else self.sinks
        slopes = q if self.slopes is None else self.slopes
        return sinks, slopes, self.scale * self.scales[0], self.softcap or 1.0

    def _shape(self, q: Tensor, max_heads: int) -> Shape:
        _, heads, dim = q.shape
        _, page_size, kv_heads, _ = self.k_pages.shape
        pages = page_size, self.k_pages.stride(0)
        return _shape(heads, kv_heads, max_heads, dim, self.value_dim, *pages)

    def _scoring(self, q: Tensor, has_spans: bool = False) -> Scoring:
        has_softcap, has_sinks = self.softcap is not None, self.sinks is not None
        has_slopes = self.slopes is not None
        return _scoring(self.window or 0, has_softcap, has_sinks, q.dtype, has_spans, has_slopes)

    def _chunk_scoring(self, q: Tensor) -> Scoring:
        return self._scoring(q, has_spans=self.span_tokens > 0)


# A launch looks its kernel up by these: they are made once.


@cache
def _shape(
    heads: int,
    kv_heads: int,
    max_heads: int,  # that one program takes
    dim: int,
    value_dim: int | None,
    page_size: int,
    page_stride: int,
) -> Shape:
    group = heads // kv_heads
    padded = min(max_heads, triton.next_power_of_2(group))
    rest = 0 if value_dim is None else dim - value_dim
    return Shape(
        *(heads, kv_heads, group, padded, dim - rest, _padded(dim - rest)),
        *(page_size, page_stride, rest, _padded(rest), value_dim is not None),
    )


@cache
def _scoring(
    window: int,
    has_softcap: bool,
    has_sinks: bool,
    dtype: torch.dtype,
    has_spans: bool,
    has_slopes: bool,
) -> Scoring:
    return Scoring(window, has_softcap, has_sinks, dot_dtype(dtype), has_spans, has_slopes)


@cache
def _splits(tiling: Tiling) -> Splits:
    return Splits(tiling.keys, tiling.min_split_keys, MAX_SPLITS)


def dot_dtype(dtype: torch.dtype) -> tl.dtype:
    """Returns the type of the factors of matrix products.

    It is float32 in the interpreter, which takes a bfloat16's bits for an integer.
    """
    if triton.knobs.runtime.interpret:
        return tl.float32
    return {torch.float32: tl.float32, torch.float16: tl.float16}.get(dtype, tl.bfloat16)


def _padded(dim: int) -> int:
    return 0 if dim == 0 else max(16, 1 << (dim - 1).bit_length())
