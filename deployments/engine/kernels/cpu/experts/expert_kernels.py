"""Mixtures of experts in one kernel: both products, the activation between them, and the sum.

Tokens are grouped by their experts, so that weights are read once for all of these. A token's
products are taken in one order, and added up in the order of its experts' numbers. What is beside
it and which threads compute it change no bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import BLOCK_WORDS, Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE
from deployments.engine.kernels.cpu.matmul_kernels import count_tasks, task_range
from deployments.engine.kernels.cpu.quantized.quantized_kernels import (
    load_row,
    room_for,
    set_up,
    take_block,
    take_rows,
    tile_arguments,
)
from deployments.engine.kernels.cpu.simd import (
    CACHE_LINE,
    PACK,
    Code,
    at_f32,
    at_i64,
    at_u16,
    call,
    exp,
    fetch,
    next_task,
    to_bfloat16,
    to_float32,
)
from deployments.engine.kernels.experts import SQUARED_RELU


class MatrixArguments(NamedTuple):
    """One matrix of each expert. It may have parts, which lie side by side in blocks: a block of
    the first part, one of the second, the next one of the first."""

    tile: int  # address of what multiplies a few rows with a block
    inputs: int  # how it takes them, and what follows, as in `QuantizedMatmulArguments`
    input_group: int
    offset: int
    unit: float
    weight: int  # packed
    expert_stride: int  # bytes
    stride: int  # bytes of a block
    first: int  # offsets of factors in a block
    second: int
    third: int
    fourth: int
    bias: int  # bfloat16 [experts, parts, n_outputs], or 0
    n_parts: int
    n_inputs: int
    filled_inputs: int  # of a block
    n_totals: int  # sums of inputs of each row
    n_outputs: int  # of a part


class ExpertArguments(NamedTuple):
    x: int  # bfloat16 [tokens, inputs]
    chosen: int  # int64 [tokens, k], numbers of experts; any other number is none
    weights: int  # [tokens, k], of the experts' answers
    has_wide_weights: int  # whether these are float32, not bfloat16
    out: int  # bfloat16 [tokens, outputs]
    activated: int  # memory: bfloat16 [tokens * k, inputs of `down`]
    n_tokens: int
    k: int
    n_experts: int
    matrix: int  # address of `MatrixArguments`: what is activated, and what multiplies that
    down: int  # the same, of the second product
    rows_per_task: int  # of an expert, that are multiplied with a block one after the other
    n_threads: int
    ahead: int  # bytes: weights are fetched so long before they are read
    stays: int  # whether they stay in caches
    barrier: int  # address of a function in which threads wait for each other
    activation: int
    limit: float  # of what is activated from above, and of what multiplies it from both sides
    slope: float  # GATE is x * sigmoid(slope * x + cube * x ** 3)
    cube: float
    shift: float  # is added to what multiplies the activated


_matrix = reader_of(MatrixArguments)
_expert_arguments = reader_of(ExpertArguments)


@njit(inline="always")
def _group(chosen: Code, n_experts: Code, most: Code, order: Code, segments: Code) -> Code:
    """Writes the places in `chosen` in the order of their experts, and segments [n, 3] of up to
    `most` of them: the expert, the first and the one behind the last. Returns how many."""
    ends = np.zeros(n_experts, np.int64)
    for expert in chosen:
        if 0 <= expert < n_experts:
            ends[expert] += 1
    n, begin = 0, 0
    for expert in range(n_experts):
        end = begin + ends[expert]
        ends[expert] = begin
        while begin < end:
            segments[n] = expert, begin, min(end, begin + most)
            begin = segments[n, 2]
            n += 1
    for place in range(len(chosen)):
        expert = chosen[place]
        if 0 <= expert < n_experts:
            order[ends[expert]] = place
            ends[expert] += 1
    return n


@njit(inline="always")
def _block(matrix: Code, expert: Code, nth: Code) -> Code:
    return matrix.weight + expert * matrix.expert_stride + nth * matrix.stride


@njit(inline="always")
def _fetch_block(address: Code, matrix: Code, n_bytes: Code) -> None:
    """Fetches the begin of a block, which does not lie behind the one that is read before it."""
    for offset in range(0, min(n_bytes, matrix.stride), CACHE_LINE):
        fetch(address + offset)


@njit(inline="always")
def _add_bias(matrix: Code, expert: Code, nth: Code, sums: Code, rows: Code) -> None:
    """Adds the bias of a block to some rows of its sums."""
    n, parts = matrix.n_outputs, matrix.n_parts
    first = nth // parts * PACK
    count = min(PACK, n - first)
    at = (expert * parts + nth % parts) * n + first
    bias = carray(at_u16(matrix.bias + 2 * at), (count,))
    for row in range(rows):
        for i in range(count):
            sums[row, i] += to_float32(bias[i])


@njit(inline="always")
def _activate(x: Code, other: Code, args: Code, is_gated: Code) -> None:
    """Puts what is activated in the place of x."""
    limit, shift = np.float32(args.limit), np.float32(args.shift)
    slope, cube = np.float32(args.slope), np.float32(args.cube)
    if args.activation == SQUARED_RELU:
        for i in range(PACK):
            positive = np.float32(0) if x[i] < 0 else x[i]
            x[i] = positive * positive
    else:
        for i in range(PACK):
            value = limit if x[i] > limit else x[i]
            bend = cube * value * value if cube != 0 else np.float32(0)
            power = value * (slope + bend)
            small = exp(-abs(power))
            rise = np.float32(1) if power >= 0 else small
            x[i] = value * (rise / (np.float32(1) + small))
    if is_gated:
        for i in range(PACK):
            value = limit if other[i] > limit else other[i]
            value = -limit if value < -limit else value
            x[i] *= value + shift


@njit(inline="always")
def _write(numbers: Code, address: Code, count: Code) -> None:
    out = carray(at_u16(address), (count,))
    for i in range(count):
        out[i] = to_bfloat16(numbers[i])


@njit(inline="always")
def _share_of(units: Code, n_threads: Code) -> Code:
    """Each thread's share, as `shares_of` parts units."""
    return units * 7 // 8 // n_threads


@njit(inline="always")
def _activate_all(
    block: Code, args: Code, matrix: Code, order: Code, segments: Code
) -> tuple[Code, Code]:
    """The first products, activated, of all tokens and their experts, in the order of the experts.

    Returns the number of its tasks, and the one behind them that was taken. Of few tokens a task is
    what lies side by side, of as many experts as it takes: all have about as many tokens. Of many
    it is one block.
    """
    parts, n_outs = matrix.n_parts, matrix.n_outputs
    x = carray(at_u16(args.x), (args.n_tokens, matrix.n_inputs))
    room = room_for(args.rows_per_task, matrix)
    sums = np.empty((2, FULL_TILE, PACK), np.float32)
    words = np.zeros(BLOCK_WORDS, np.int64)
    tile = tile_arguments(words.ctypes.data)
    set_up(tile, matrix, sums)
    tile.ahead, tile.stays = args.ahead, args.stays
    n_blocks = (n_outs + PACK - 1) // PACK
    units, loaded = len(segments) * n_blocks, -1
    share = _share_of(units, args.n_threads) if args.n_tokens <= FULL_TILE else 0
    n_shares = args.n_threads if share > 0 else 0
    n_tasks = count_tasks(units, n_shares, share)
    task = next_task(block)
    while task < n_tasks:
        unit, last = task_range(task, n_shares, share)
        while unit < last:
            nth, number = unit // n_blocks, unit % n_blocks
            expert, begin, end = segments[nth]
            if nth != loaded:
                for row in range(end - begin):
                    load_row(x[order[begin + row] // args.k], matrix, row, room)
                loaded = nth
            if number + 1 == n_blocks and unit + 1 < last:
                _fetch_block(_block(matrix, segments[nth + 1, 0], 0), matrix, args.ahead)
            first = number * PACK
            count = min(PACK, n_outs - first)
            for row in range(0, end - begin, FULL_TILE):
                take_rows(tile, matrix, row, min(FULL_TILE, end - begin - row), room)
                for part in range(parts):
                    own = number * parts + part
                    take_block(tile, matrix, _block(matrix, expert, own))
                    tile.sums = sums[part].ctypes.data
                    call(matrix.tile, words.ctypes.data)
                    if matrix.bias != 0:
                        _add_bias(matrix, expert, own, sums[part], tile.rows)
                for i in range(tile.rows):
                    _activate(sums[0, i], sums[1, i], args, parts > 1)
                    into = args.activated + 2 * ((begin + row + i) * n_outs + first)
                    _write(sums[0, i], into, count)
            unit += 1
        task = next_task(block)
    return n_tasks, task


@njit(inline="always")
def _sum_all(
    block: Code, args: Code, down: Code, order: Code, segments: Code, n_before: Code, task: Code
) -> None:
    """The second products, weighted, and summed for each token. Their tasks, some blocks of all
    experts each, are behind `n_before` others. `task` was taken already."""
    n_outs, n_rows = down.n_outputs, args.n_tokens * args.k
    wide_weights = carray(at_f32(args.weights), (n_rows,))
    weights = carray(at_u16(args.weights), (n_rows,))
    activated = carray(at_u16(args.activated), (n_rows, down.n_inputs))
    room = room_for(args.rows_per_task, down)
    sums = np.empty((FULL_TILE, PACK), np.float32)
    words = np.zeros(BLOCK_WORDS, np.int64)
    tile = tile_arguments(words.ctypes.data)
    set_up(tile, down, sums)
    tile.ahead, tile.stays = args.ahead, args.stays
    n_blocks = (n_outs + PACK - 1) // PACK
    share = _share_of(n_blocks, args.n_threads)
    n_shares = args.n_threads if share > 0 else 0
    answers = np.empty((args.n_tokens, max(share, 1) * PACK), np.float32)
    while task - n_before < count_tasks(n_blocks, n_shares, share):
        begin, end = task_range(task - n_before, n_shares, share)
        answers[:] = 0
        for nth in range(len(segments)):
            expert, first_row, end_row = segments[nth]
            for row in range(first_row, end_row):
                load_row(activated[row], down, row - first_row, room)
            for number in range(begin, end):
                if number + 1 == end and nth + 1 < len(segments):
                    _fetch_block(_block(down, segments[nth + 1, 0], begin), down, args.ahead)
                take_block(tile, down, _block(down, expert, number))
                at = (number - begin) * PACK
                for row in range(first_row, end_row, FULL_TILE):
                    rows = min(FULL_TILE, end_row - row)
                    take_rows(tile, down, row - first_row, rows, room)
                    call(down.tile, words.ctypes.data)
                    if down.bias != 0:
                        _add_bias(down, expert, number, sums, rows)
                    for i in range(rows):
                        place = order[row + i]
                        narrow = to_float32(weights[place])
                        weight = wide_weights[place] if args.has_wide_weights else narrow
                        answer = answers[place // args.k, at : at + PACK]
                        for j in range(PACK):
                            answer[j] += weight * sums[i, j]
        first, count = begin * PACK, min(end * PACK, n_outs) - begin * PACK
        for token in range(args.n_tokens):
            _write(answers[token], args.out + 2 * (token * n_outs + first), count)
        task = next_task(block)


@cache
def experts_kernel() -> Kernel:
    """The weighted sum of what each token's experts make of it. The threads wait once for each
    other, between the two products."""

    def body(block: Code) -> None:
        args = _expert_arguments(block)
        matrix, down = _matrix(args.matrix), _matrix(args.down)
        n_rows, most = args.n_tokens * args.k, args.rows_per_task
        chosen = carray(at_i64(args.chosen), (n_rows,))
        order = np.empty(n_rows, np.int64)
        room = min(args.n_experts, n_rows) + n_rows // most
        segments = np.empty((room, 3), np.int64)
        segments = segments[: _group(chosen, args.n_experts, most, order, segments)]
        n_tasks, task = _activate_all(block, args, matrix, order, segments)
        call(args.barrier, 0)
        _sum_all(block, args, down, order, segments, n_tasks, task)

    return Kernel(body, ExpertArguments)
