"""What LoRA adapters add to products of bfloat16 on a CPU, compiled by numba.

Tokens of one adapter lie side by side in a list: a segment. The first empty segment ends the list
of segments. Every task is some outputs of one segment, and a sum is taken in one order: what is
beside a token changes no bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, PACK, multiply_some
from deployments.engine.kernels.cpu.simd import (
    CACHE_LINE,
    Code,
    at_f32,
    at_i64,
    at_u16,
    exp,
    fetch,
    next_task,
    to_bfloat16,
    to_float32,
)

RANKS = 16  # of a block of A
BLOCKS = 4  # of outputs, of a task: taking one costs as much as a small product


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
            if begin == end:
                break
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
    shrunk: int  # float32 [tokens and FULL_TILE more, parts, max_rank]
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
    ahead: int  # address of what the next kernel reads of each slot, one behind the other
    ahead_bytes: int  # of one slot


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
        sums = np.empty((FULL_TILE, PACK), np.float32)
        n_tasks = (args.n_blocks + BLOCKS - 1) // BLOCKS  # of a segment
        while True:
            task = next_task(block)
            nth, group = task // n_tasks, task % n_tasks
            if nth >= args.n_segments:
                break
            slot, begin, end = segments[nth]
            if begin == end:
                break
            _fetch_share(args.ahead, args.ahead_bytes, slot, group, n_tasks)
            places = carray(at_i64(args.places), (end,))
            for nth_block in range(group * BLOCKS, min((group + 1) * BLOCKS, args.n_blocks)):
                own = args.first_block + nth_block
                part, first, n_outs = blocks[own]
                rank = ranks[slot, part]
                if rank == 0:
                    continue
                rank += rank % 2
                weight = args.weight + 2 * PACK * max_rank * (slot * args.n_all_blocks + own)
                row = begin
                while row < end:
                    count = min(FULL_TILE, end - row)
                    shrunk = args.shrunk + 4 * (row * n_parts + part) * max_rank
                    tile = multiply_some(
                        weight, 0, shrunk, n_parts * max_rank, 1, 0, sums.ctypes.data, rank, count,
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


class ActivateArguments(NamedTuple):
    shrunk: int  # float32 [tokens and FULL_TILE more, 2, max_rank]
    places: int  # int64 [tokens], of the rows of `gate` and `up`
    segments: int
    n_segments: int
    others: int  # int64 [n_others], the rows without an adapter, up to the first -1
    n_others: int
    ranks: int  # int64 [slots, 2]
    max_rank: int  # even
    weight: int  # bfloat16 [slots, 2, blocks of one part, max_rank / 2, PACK, 2]
    gate: int  # bfloat16 [all tokens, width]
    up: int  # the same
    width: int
    ahead: int
    ahead_bytes: int


_activate_arguments = reader_of(ActivateArguments)


@cache
def activate_kernel() -> Kernel:
    """`silu(gate + B shrunk) * (up + B shrunk)` in the place of `gate`, with one rounding."""

    def body(block: Code) -> None:
        args = _activate_arguments(block)
        max_rank, width, n_segments = args.max_rank, args.width, args.n_segments
        n_blocks = (width + PACK - 1) // PACK
        segments = carray(at_i64(args.segments), (n_segments, 3))
        others = carray(at_i64(args.others), (args.n_others,))
        ranks = carray(at_i64(args.ranks), (1 << 20, 2))
        sums = np.zeros((2, FULL_TILE, PACK), np.float32)
        n_tasks = (n_blocks + BLOCKS - 1) // BLOCKS
        while True:
            task = next_task(block)
            nth, group = task // n_tasks, task % n_tasks
            if nth > n_segments:
                break
            first_block, end_block = group * BLOCKS, min((group + 1) * BLOCKS, n_blocks)
            if nth == 0:
                sums[:, 0] = 0
                for own in range(first_block, end_block):
                    first = own * PACK
                    n_outs = min(PACK, width - first)
                    for row in others:
                        if row < 0:
                            break
                        _activate(args.gate, args.up, row * width + first, n_outs, sums[:, 0])
                continue
            slot, begin, end = segments[nth - 1]
            if begin == end:
                break
            _fetch_share(args.ahead, args.ahead_bytes, slot, group, n_tasks)
            places = carray(at_i64(args.places), (end,))
            for own in range(first_block, end_block):
                first = own * PACK
                n_outs = min(PACK, width - first)
                row = begin
                while row < end:
                    count = tile = min(FULL_TILE, end - row)
                    for part in range(2):
                        rank = ranks[slot, part]
                        if rank == 0:
                            sums[part, :count] = 0
                            continue
                        tile = multiply_some(
                            args.weight
                            + 2 * PACK * max_rank * ((2 * slot + part) * n_blocks + own),
                            0, args.shrunk + 4 * (2 * row + part) * max_rank, 2 * max_rank, 1, 0,
                            sums.ctypes.data + 4 * part * FULL_TILE * PACK, rank + rank % 2, count,
                            PACK, 16, 0,
                        )  # fmt: skip
                    tile = min(tile, count)
                    for i in range(tile):
                        place = places[row + i] * width + first
                        _activate(args.gate, args.up, place, n_outs, sums[:, i])
                    row += tile

    return Kernel(body, ActivateArguments)


@njit(inline="always")
def _fetch_share(begin: Code, n_bytes: Code, slot: Code, nth: Code, of: Code) -> None:
    """The nth share of a slot: to wait for memory while products are computed."""
    share = (n_bytes // of // CACHE_LINE + 1) * CACHE_LINE
    for offset in range(nth * share, min((nth + 1) * share, n_bytes), CACHE_LINE):
        fetch(begin + slot * n_bytes + offset)


@njit(inline="always")
def _activate(gate: Code, up: Code, place: Code, count: Code, added: Code) -> None:
    """Of numbers side by side from a place on. added: [2, count or more]"""
    gates, ups = (
        carray(at_u16(gate + 2 * place), (count,)),
        carray(at_u16(up + 2 * place), (count,)),
    )
    for j in range(count):
        value = to_float32(gates[j]) + added[0, j]
        small = exp(-abs(value))
        rise = np.float32(1) if value >= 0 else small
        value *= rise / (np.float32(1) + small)
        gates[j] = to_bfloat16(value * (to_float32(ups[j]) + added[1, j]))
