"""Attention of prompts' chunks to the paged cache, for bfloat16 on a CPU, compiled by numba.

What a token gets does not depend on how a prompt is cut, to the last bit: its keys are summed in
the order of their positions, in blocks that begin at the same positions for all.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.attention_ir import soften
from deployments.engine.kernels.cpu.attention_kernels import (
    Keys,
    apply_softcap,
    page_part,
    pages_of,
)
from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, multiply_some
from deployments.engine.kernels.cpu.simd import (
    PACK,
    Code,
    as_float32,
    at_f32,
    at_i64,
    at_u16,
    next_task,
    to_bfloat16,
    to_float32,
)

KEYS_PER_BLOCK = 128  # whose scores are in memory at once


class ChunkArguments(NamedTuple):
    """The arguments of `chunk_kernel`, as in `attention_kernels.DecodeArguments`."""

    q: int
    q_token_stride: int
    q_head_stride: int
    out: int
    k_pages: int
    v_pages: int
    n_pieces: int
    pieces: int  # int64 [n_pieces, 4]: first token in the batch, its position, tokens, row
    page_table: int
    page_table_stride: int
    kv_heads: int
    page_size: int
    page_bytes: int
    window: int
    sinks: int
    slopes: int
    scale: float
    softcap: float
    max_tokens: int  # of a piece


_chunk_arguments = reader_of(ChunkArguments)


@njit(inline="always")
def _load_block(keys: Code, base: Code, pages: Code, block: Code) -> None:
    """Loads one head's keys or values to `block` [tokens, dim], whose first token is `base`.

    Beside them are zeros: a weight of 0 would not cancel what is no number.
    """
    dim = block.shape[1]
    block[: keys.begin - base] = 0
    block[keys.end - base :] = 0
    for page in pages_of(keys):
        address, start, count, _ = page_part(keys, page, pages)
        for t in range(count):
            given = carray(at_u16(address + t * keys.token_bytes), (dim,))
            for d in range(dim):
                block[start - base + t, d] = to_float32(given[d])


# A pack's queries are the lanes of vectors; `states` is what `soften` keeps of each.


@njit(inline="always")
def _multiply_keys(query: Code, keys: Code, count: Code, scores: Code, dim: Code) -> None:
    """Scores [keys, PACK] of a pack of queries [dim, PACK]."""
    done = 0
    while done < count:
        k, into = keys[done].ctypes.data, scores[done].ctypes.data
        left = count - done
        done += multiply_some(query.ctypes.data, 0, k, dim, 1, into, dim, left, PACK, PACK, 32, 0)


@njit(inline="always")
def _multiply_values(
    weights: Code, rescale: Code, values: Code, count: Code, sums: Code, dim: Code
) -> None:
    """Adds values times the weights of a pack to its sums [dim, PACK], times `rescale`."""
    own, done = weights.ctypes.data, 0
    while done < dim:
        v, into = values.ctypes.data + 4 * done, sums[done].ctypes.data
        left, by = dim - done, rescale.ctypes.data
        done += multiply_some(own, by, v, 1, dim, into, count, left, PACK, PACK, 32, 1)


@njit(inline="always")
def _add_distances(scores: Code, count: Code, base: Code, slopes: Code, positions: Code) -> None:
    """Adds to scores [keys, PACK] how far before its query each key is, times the query's slope."""
    for key in range(count):
        for lane in range(PACK):
            scores[key, lane] += slopes[lane] * np.float32(base + key - positions[lane])


@njit(inline="always")
def _load_slopes(
    args: Code, piece: Code, head: Code, group: Code, slopes: Code, positions: Code
) -> None:
    """The slope and the position of each query of a piece's packs. [packs, PACK] both"""
    rows = piece[2] * group
    for r in range((rows + PACK - 1) // PACK * PACK):
        pack, lane, own = r // PACK, r % PACK, min(r, rows - 1)
        of = head * group + own % group
        slopes[pack, lane] = carray(at_f32(args.slopes), (of + 1,))[of]
        positions[pack, lane] = piece[1] + own // group


@njit(inline="always")
def _load_queries(
    args: Code, piece: Code, head: Code, group: Code, query: Code, states: Code, dim: Code
) -> None:
    """A piece's queries of one KV head to packs [packs, dim, PACK], the tokens' heads side by side.

    The last pack is filled up with the last query.
    """
    scale, rows = np.float32(args.scale), piece[2] * group
    for r in range((rows + PACK - 1) // PACK * PACK):
        pack, lane, own = r // PACK, r % PACK, min(r, rows - 1)
        token, of = own // group, head * group + own % group
        q = args.q + 2 * ((piece[0] + token) * args.q_token_stride + of * args.q_head_stride)
        given = carray(at_u16(q), (dim,))
        for d in range(dim):
            query[pack, d, lane] = to_float32(given[d]) * scale
        sinks = carray(at_u16(args.sinks), (of + 1,))
        states[pack, 0, lane] = as_float32(np.uint32(piece[1] + token))
        states[pack, 1, lane] = np.float32(-np.inf) if args.sinks == 0 else to_float32(sinks[of])
        states[pack, 2, lane] = np.float32(0) if args.sinks == 0 else np.float32(1)


@njit(inline="always")
def _store_results(
    args: Code, piece: Code, head: Code, group: Code, sums: Code, states: Code, dim: Code
) -> None:
    for r in range(piece[2] * group):
        pack, lane = r // PACK, r % PACK
        of = (piece[0] + r // group) * args.kv_heads * group + head * group + r % group
        result = carray(at_u16(args.out + 2 * of * dim), (dim,))
        for d in range(dim):
            result[d] = to_bfloat16(sums[pack, d, lane] / states[pack, 2, lane])


@cache
def chunk_kernel(dim: int, group: int) -> Kernel:
    """Attention of pieces of prompts to the pages of their rows.

    A task is a piece's queries of one KV head. It multiplies them with a block of keys, makes
    weights of the scores as if no more keys came, and multiplies these with the values; the next
    block rescales what was before (the online softmax).
    """

    def body(block: Code) -> None:
        args = _chunk_arguments(block)
        kv_heads, page_size, window = args.kv_heads, args.page_size, args.window
        softcap = np.float32(args.softcap)
        pieces = carray(at_i64(args.pieces), (args.n_pieces, 4))
        max_packs = (args.max_tokens * group + PACK - 1) // PACK
        query, sums = np.zeros((2, max_packs, dim + FULL_TILE, PACK), np.float32)
        scores = np.empty((max_packs, KEYS_PER_BLOCK, PACK), np.float32)
        states = np.empty((max_packs, 4, PACK), np.float32)
        slopes = np.empty((max_packs, PACK), np.float32)
        positions = np.empty((max_packs, PACK), np.int64)
        k, v = np.zeros((2, KEYS_PER_BLOCK + FULL_TILE, dim), np.float32)
        while True:
            task = next_task(block)
            if task >= args.n_pieces * kv_heads:
                break
            head, piece = task % kv_heads, pieces[task // kv_heads]
            position, last = piece[1], piece[1] + piece[2]
            table = args.page_table + 8 * piece[3] * args.page_table_stride
            table = carray(at_i64(table), ((last - 1) // page_size + 1,))
            packs = (piece[2] * group + PACK - 1) // PACK
            _load_queries(args, piece, head, group, query, states, dim)
            if args.slopes != 0:
                _load_slopes(args, piece, head, group, slopes, positions)
            sums[:packs] = 0
            first = max(0, position - window + 1)  # that anything here sees
            for base in range(first // KEYS_PER_BLOCK * KEYS_PER_BLOCK, last, KEYS_PER_BLOCK):
                begin, end = max(first, base), min(base + KEYS_PER_BLOCK, last)
                keys = Keys(table, begin, end, page_size, 2 * kv_heads * dim, args.page_bytes)
                width = (end - base + 1) // 2 * 2  # `multiply` takes pairs
                _load_block(keys, base, args.k_pages + 2 * head * dim, k)
                _load_block(keys, base, args.v_pages + 2 * head * dim, v)
                for pack in range(packs):
                    own, state = scores[pack].ctypes.data, states[pack].ctypes.data
                    _multiply_keys(query[pack], k, width, scores[pack], dim)
                    if softcap > 0:
                        apply_softcap(own, width * PACK, softcap)
                    if args.slopes != 0:
                        _add_distances(scores[pack], width, base, slopes[pack], positions[pack])
                    if base + width - 1 > position or base < last - window:
                        soften(own, width, base, window, state, PACK, 1)
                    else:
                        soften(own, width, base, window, state, PACK, 0)
                    _multiply_values(scores[pack], states[pack, 3], v, width, sums[pack], dim)
            _store_results(args, piece, head, group, sums, states, dim)

    return Kernel(body, ChunkArguments)
