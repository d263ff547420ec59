"""What LoRA adapters add to products of bfloat16 on a CPU, compiled by numba.

Tokens of one adapter lie side by side in a list: a segment. Every task is some outputs of one
segment, and a sum is taken in one order: what is beside a token changes no bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, PACK, multiply_some
from deployments.engine.kernels.cpu.simd import (
    Code,
    at_f32,
    at_i64,
    at_u16,
    next_task,
    to_bfloat16,
    to_float32,
)

RANKS = 16  # of a block of A


class ShrinkArguments(NamedTuple):
    x: int  # bfloat16 [all tokens, width]
    tokens: int  # int64 [tokens]
    segments: int  # int64 [n_segments, 3]: slot from 0 on, first and last (excluded) of `tokens`
    n_segments: int
    ranks: int  # int64 [slots, parts]
    n_parts: int
    max_rank: int  # a multiple of RANKS
    weight: int  # bfloat16 [slots, parts, max_rank / RANKS, width / 2, RANKS, 2]
    width: int  # even
    out: int  # float32 [tokens, parts, max_rank]


_shrink_arguments = reader_of(ShrinkArguments)


@cache
def shrink_kernel() -> Kernel:
    """A x. Of a block behind a part's rank nothing is written."""

    def body(block: Code) -> None:
        args = _shrink_arguments(block)
        width, max_rank = args.width, args.max_rank
        segments = carray(at_i64(args.segments), (args.n_segments, 3))
        ranks = carray(at_i64(args.ranks), (1 << 20, args.n_parts))
        blocks_of_part = max_rank // RANKS
        blocks = args.n_parts * blocks_of_part
        rows = np.zeros((FULL_TILE, width), np.float32)
        sums = np.empty((FULL_TILE, RANKS), np.float32)
        while True:
            task = next_task(block)
            nth, own = task // blocks, task % blocks
            if nth >= args.n_segments:
                break
            slot, begin, end = segments[nth]
            part, first = own // blocks_of_part, own % blocks_of_part * RANKS
            if first >= ranks[slot, part]:
                continue
            tokens = carray(at_i64(args.tokens), (end,))
            weight = args.weight + 2 * RANKS * width * (slot * blocks + own)
            row = begin
            while row < end:
                count = min(FULL_TILE, end - row)
                for i in range(count):
                    x = carray(at_u16(args.x + 2 * width * tokens[row + i]), (width,))
                    for j in range(width):
                        rows[i, j] = to_float32(x[j])
                tile = multiply_some(
                    weight, 0, rows.ctypes.data, width, 1, 0, sums.ctypes.data, width, count,
                    RANKS, 16, 0,
                )  # fmt: skip
                tile = min(tile, count)
                for i in range(tile):
                    place = ((row + i) * args.n_parts + part) * max_rank + first
                    out = carray(at_f32(args.out + 4 * place), (RANKS,))
                    for j in range(RANKS):
                        out[j] = sums[i, j]
                row += tile

    return Kernel(body, ShrinkArguments)


class ExpandArguments(NamedTuple):
    shrunk: int  # float32 [tokens, parts, max_rank]
    places: int  # int64 [tokens], of the rows of `out`
    segments: int
    n_segments: int
    ranks: int
    n_parts: int
    max_rank: int  # even
    blocks: int  # int64 [all blocks, 3]: part, first output of all, and how many outputs
    first_block: int
    n_blocks: int
    n_all_blocks: int
    weight: int  # bfloat16 [slots, all blocks, max_rank / 2, PACK, 2]
    out: int  # bfloat16 [all tokens, out_width]
    first_out: int  # which of all outputs the first one in `out` is
    out_width: int


_expand_arguments = reader_of(ExpandArguments)


@cache
def expand_kernel() -> Kernel:
    """Adds B shrunk to some outputs."""

    def body(block: Code) -> None:
        args = _expand_arguments(block)
        max_rank, n_parts = args.max_rank, args.n_parts
        segments = carray(at_i64(args.segments), (args.n_segments, 3))
        ranks = carray(at_i64(args.ranks), (1 << 20, n_parts))
        blocks = carray(at_i64(args.blocks), (args.n_all_blocks, 3))
        rows = np.zeros((FULL_TILE, max_rank), np.float32)
        sums = np.empty((FULL_TILE, PACK), np.float32)
        while True:
            task = next_task(block)
            nth, own = task // args.n_blocks, task % args.n_blocks + args.first_block
            if nth >= args.n_segments:
                break
            slot, begin, end = segments[nth]
            part, first, n_outs = blocks[own]
            rank = ranks[slot, part]
            if rank == 0:
                continue
            rank += rank % 2
            places = carray(at_i64(args.places), (end,))
            weight = args.weight + 2 * PACK * max_rank * (slot * args.n_all_blocks + own)
            row = begin
            while row < end:
                count = min(FULL_TILE, end - row)
                for i in range(count):
                    place = ((row + i) * n_parts + part) * max_rank
                    shrunk = carray(at_f32(args.shrunk + 4 * place), (rank,))
                    for j in range(rank):
                        rows[i, j] = shrunk[j]
                tile = multiply_some(
                    weight, 0, rows.ctypes.data, max_rank, 1, 0, sums.ctypes.data, rank, count,
                    PACK, 16, 0,
                )  # fmt: skip
                tile = min(tile, count)
                for i in range(tile):
                    place = places[row + i] * args.out_width + first - args.first_out
                    out = carray(at_u16(args.out + 2 * place), (n_outs,))
                    for j in range(n_outs):
                        out[j] = to_bfloat16(to_float32(out[j]) + sums[i, j])
                row += tile

    return Kernel(body, ExpandArguments)
