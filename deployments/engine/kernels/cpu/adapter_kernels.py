"""Kernels that add LoRA adapters to products of bfloat16 on a CPU, compiled by numba.

Tokens of one adapter lie side by side in a list: a segment. The first empty segment ends the list
of segments. Every task is some outputs of one segment, and a sum is taken in one order: what is
beside a token changes no bit. Tasks of A x come first. Then all threads wait for each other, which
takes less than a second call, and the tasks of B (A x) follow.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, multiply_some
from deployments.engine.kernels.cpu.matmul_kernels import GELU, SWISH, activated
from deployments.engine.kernels.cpu.simd import (
    CACHE_LINE,
    PACK,
    Code,
    at_f32,
    at_i64,
    at_u16,
    call,
    fetch,
    next_task,
    to_bfloat16,
    to_float32,
)

RANKS = 16  # of a block of A
BLOCKS = 4  # of outputs, of a task: taking one costs as much as a small product


class AddArguments(NamedTuple):
    x: int  # bfloat16 [all tokens, width]
    width: int  # even
    tokens: int  # int64 [tokens]
    segments: int  # int64 [n_segments, 3]: slot from 0 on, first and last (excluded) of `tokens`
    n_segments: int
    ranks: int  # int64 [slots, parts]
    n_parts: int
    max_rank: int  # a multiple of RANKS
    a: int  # bfloat16 [slots, parts, max_rank / RANKS, width / 2, RANKS, 2]
    shrunk: int  # float32 [tokens and FULL_TILE more, parts, max_rank]: memory for A x
    barrier: int  # address of a function in which threads wait for each other; 0: one thread
    blocks: int  # int64 [n_blocks, 3]: part, first output, and how many outputs
    n_blocks: int
    b: int  # bfloat16 [slots, n_blocks, max_rank / 2, PACK, 2]
    out: int  # bfloat16 [all tokens, out_width]
    out_width: int
    ahead: int  # address of what the next kernel reads of each slot, one behind the other
    ahead_bytes: int  # of one slot


_add_arguments = reader_of(AddArguments)


@cache
def add_kernel() -> Kernel:
    """Adds B (A x) to the outputs of the tokens with an adapter."""

    def body(block: Code) -> None:
        args = _add_arguments(block)
        max_rank, n_parts, n_blocks = args.max_rank, args.n_parts, args.n_blocks
        segments = carray(at_i64(args.segments), (args.n_segments, 3))
        ranks = carray(at_i64(args.ranks), (1 << 20, n_parts))
        blocks = carray(at_i64(args.blocks), (n_blocks, 3))
        used = _used(segments)
        n_shrinks = used * n_parts * (max_rank // RANKS)
        task = _shrink(
            block, args.x, args.width, args.tokens, segments, n_shrinks, ranks, n_parts, max_rank,
            args.a, args.shrunk,
        )  # fmt: skip
        if args.barrier != 0:
            call(args.barrier, 0)
        sums = np.empty((FULL_TILE, PACK), np.float32)
        n_tasks = (n_blocks + BLOCKS - 1) // BLOCKS  # of a segment
        while task - n_shrinks < used * n_tasks:
            nth, group = (task - n_shrinks) // n_tasks, (task - n_shrinks) % n_tasks
            slot, begin, end = segments[nth]
            _fetch_share(args.ahead, args.ahead_bytes, slot, group, n_tasks)
            indices = carray(at_i64(args.tokens), (end,))
            for own in range(group * BLOCKS, min((group + 1) * BLOCKS, n_blocks)):
                part, first, n_outs = blocks[own]
                rank = ranks[slot, part]
                if rank == 0:
                    continue
                rank += rank % 2
                weight = args.b + 2 * PACK * max_rank * (slot * n_blocks + own)
                row = begin
                while row < end:
                    count = min(FULL_TILE, end - row)
                    shrunk = args.shrunk + 4 * (row * n_parts + part) * max_rank
                    tile = multiply_some(
                        weight, 0, shrunk, n_parts * max_rank, 1, sums.ctypes.data, rank, count,
                        PACK, PACK, 16, 0,
                    )  # fmt: skip
                    tile = min(tile, count)
                    for i in range(tile):
                        offset = indices[row + i] * args.out_width + first
                        out = carray(at_u16(args.out + 2 * offset), (n_outs,))
                        for j in range(n_outs):
                            out[j] = to_bfloat16(to_float32(out[j]) + sums[i, j])
                    row += tile
            task = next_task(block)

    return Kernel(body, AddArguments)


class ActivateArguments(NamedTuple):
    x: int  # as of `AddArguments`
    width: int
    tokens: int
    segments: int
    n_segments: int
    others: int  # int64 [n_others], the tokens without an adapter, up to the first -1
    n_others: int
    ranks: int  # int64 [slots, 2]
    max_rank: int
    a: int
    shrunk: int
    barrier: int
    b: int  # bfloat16 [slots, 2, blocks of one part, max_rank / 2, PACK, 2]
    gate: int  # bfloat16 [all tokens, out_width]
    up: int  # the same
    activation: int  # SWISH or GELU
    out_width: int
    ahead: int
    ahead_bytes: int


_activate_arguments = reader_of(ActivateArguments)


@cache
def activate_kernel() -> Kernel:
    """`activation(gate + B (A x)) * (up + B (A x))` in the place of `gate`, with one rounding."""

    def body(block: Code) -> None:
        args = _activate_arguments(block)
        max_rank, width = args.max_rank, args.out_width
        n_blocks = (width + PACK - 1) // PACK
        segments = carray(at_i64(args.segments), (args.n_segments, 3))
        others = carray(at_i64(args.others), (args.n_others,))
        ranks = carray(at_i64(args.ranks), (1 << 20, 2))
        used = _used(segments)
        n_shrinks = used * 2 * (max_rank // RANKS)
        task = _shrink(
            block, args.x, args.width, args.tokens, segments, n_shrinks, ranks, 2, max_rank,
            args.a, args.shrunk,
        )  # fmt: skip
        sums = np.zeros((2, FULL_TILE, PACK), np.float32)
        n_tasks = (n_blocks + BLOCKS - 1) // BLOCKS
        # Those of tokens without an adapter need no A x.
        while task - n_shrinks < n_tasks:
            group = task - n_shrinks
            for own in range(group * BLOCKS, min((group + 1) * BLOCKS, n_blocks)):
                first = own * PACK
                for row in others:
                    if row < 0:
                        break
                    n_outs = min(PACK, width - first)
                    offset = row * width + first
                    _activate(args.activation, args.gate, args.up, offset, n_outs, sums[:, 0])
            task = next_task(block)
        if args.barrier != 0:
            call(args.barrier, 0)
        begun = n_shrinks + n_tasks
        while task - begun < used * n_tasks:
            nth, group = (task - begun) // n_tasks, (task - begun) % n_tasks
            slot, begin, end = segments[nth]
            _fetch_share(args.ahead, args.ahead_bytes, slot, group, n_tasks)
            indices = carray(at_i64(args.tokens), (end,))
            for own in range(group * BLOCKS, min((group + 1) * BLOCKS, n_blocks)):
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
                            args.b + 2 * PACK * max_rank * ((2 * slot + part) * n_blocks + own),
                            0, args.shrunk + 4 * (2 * row + part) * max_rank, 2 * max_rank, 1,
                            sums.ctypes.data + 4 * part * FULL_TILE * PACK, rank + rank % 2, count,
                            PACK, PACK, 16, 0,
                        )  # fmt: skip
                    tile = min(tile, count)
                    for i in range(tile):
                        offset = indices[row + i] * width + first
                        own_sums = sums[:, i]
                        _activate(args.activation, args.gate, args.up, offset, n_outs, own_sums)
                    row += tile
            task = next_task(block)

    return Kernel(body, ActivateArguments)


@njit(inline="always")
def _used(segments: Code) -> Code:
    """How many segments there are before the first empty one."""
    n = 0
    while n < len(segments) and segments[n, 1] < segments[n, 2]:
        n += 1
    return n


@njit(inline="always")
def _shrink(
    block: Code,
    x: Code,
    width: Code,
    tokens: Code,
    segments: Code,
    n_tasks: Code,
    ranks: Code,
    n_parts: Code,
    max_rank: Code,
    a: Code,
    out: Code,
) -> Code:
    """A x, by the first `n_tasks` tasks. Returns the task behind them that was taken. Of a block
    behind a part's rank nothing is written."""
    blocks_of_part = max_rank // RANKS
    blocks = n_parts * blocks_of_part
    rows = np.zeros((FULL_TILE, width), np.float32)
    sums = np.empty((FULL_TILE, RANKS), np.float32)
    task = next_task(block)
    while task < n_tasks:
        own = task % blocks
        slot, begin, end = segments[task // blocks]
        part, first = own // blocks_of_part, own % blocks_of_part * RANKS
        row = begin if first < ranks[slot, part] else end
        indices = carray(at_i64(tokens), (end,))
        while row < end:
            count = min(FULL_TILE, end - row)
            for i in range(count):
                inputs = carray(at_u16(x + 2 * width * indices[row + i]), (width,))
                for j in range(width):
                    rows[i, j] = to_float32(inputs[j])
            tile = multiply_some(
                a + 2 * RANKS * width * (slot * blocks + own), 0, rows.ctypes.data, width, 1,
                sums.ctypes.data, width, count, RANKS, RANKS, 16, 0,
            )  # fmt: skip
            tile = min(tile, count)
            for i in range(tile):
                offset = ((row + i) * n_parts + part) * max_rank + first
                shrunk = carray(at_f32(out + 4 * offset), (RANKS,))
                for j in range(RANKS):
                    shrunk[j] = sums[i, j]
            row += tile
        task = next_task(block)
    return task


@njit(inline="always")
def _fetch_share(begin: Code, n_bytes: Code, slot: Code, nth: Code, of: Code) -> None:
    """The nth share of a slot: to wait for memory while products are computed."""
    share = (n_bytes // of // CACHE_LINE + 1) * CACHE_LINE
    for offset in range(nth * share, min((nth + 1) * share, n_bytes), CACHE_LINE):
        fetch(begin + slot * n_bytes + offset)


@njit(inline="always")
def _activate(kind: Code, gate: Code, up: Code, offset: Code, count: Code, added: Code) -> None:
    """Puts the activation of gate + added[0], times (up + added[1]), in the place of `count` gates
    from `offset` on.

    added: [2, count or more]
    """
    gates, ups = (
        carray(at_u16(gate + 2 * offset), (count,)),
        carray(at_u16(up + 2 * offset), (count,)),
    )
    if kind == GELU:
        for j in range(count):
            value = activated(to_float32(gates[j]) + added[0, j], GELU)
            gates[j] = to_bfloat16(value * (to_float32(ups[j]) + added[1, j]))
    else:
        for j in range(count):
            value = activated(to_float32(gates[j]) + added[0, j], SWISH)
            gates[j] = to_bfloat16(value * (to_float32(ups[j]) + added[1, j]))
