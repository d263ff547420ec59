"""Matrix products of bfloat16 on a CPU, compiled by numba.

Every task is computed in one order whatever else is in the batch, so what is beside a token and
which thread takes it change no bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, multiply_some
from deployments.engine.kernels.cpu.simd import (
    Code,
    at_u16,
    exp,
    next_task,
    to_bfloat16,
    to_float32,
)

PACKS = (32, 64, 48, 16)  # how many outputs may lie side by side in a matrix of oneDNN's
NONE, SWISH, ADD, MUL, GELU = range(5)  # epilogues of a product
ACTIVATIONS = {GateActivation.SILU: SWISH, GateActivation.GELU_TANH: GELU}
# GELU by the hyperbolic tangent is x * sigmoid(GELU_FACTOR * (x + GELU_CUBIC * x ** 3)).
GELU_FACTOR, GELU_CUBIC = np.float32(2 * (2 / np.pi) ** 0.5), np.float32(0.044715)


@njit(inline="always")
def sigmoid(x: Code) -> Code:
    small = exp(-abs(x))
    rise = np.float32(1) if x >= 0 else small
    return rise / (np.float32(1) + small)


@njit(inline="always")
def activated(x: Code, kind: Code) -> Code:
    """The activation SWISH or GELU of a float32."""
    return x * sigmoid(x if kind == SWISH else GELU_FACTOR * (x + GELU_CUBIC * x * x * x))


@njit(inline="always")
def finish_row(sums: Code, bias: Code, kind: Code, other: Code, out: Code, count: Code) -> None:
    """Adds the bias to one row's product, applies the epilogue `kind`, and writes the result.

    `bias`, `other` and `out` are addresses of bfloat16; the first two may be 0.
    """
    others, outs = carray(at_u16(other), (count,)), carray(at_u16(out), (count,))
    if bias != 0:
        biases = carray(at_u16(bias), (count,))
        for i in range(count):
            sums[i] += to_float32(biases[i])
    if kind == SWISH:
        for i in range(count):
            sums[i] = activated(sums[i], SWISH)
    elif kind == GELU:
        for i in range(count):
            sums[i] = activated(sums[i], GELU)
    elif kind == ADD:
        for i in range(count):
            sums[i] += to_float32(others[i])
    elif kind == MUL:
        for i in range(count):
            sums[i] *= to_float32(others[i])
    for i in range(count):
        outs[i] = to_bfloat16(sums[i])


@njit(inline="always")
def padded_rows(rows: Code) -> Code:
    """Room for so many rows, and for those that a tile takes behind the last one."""
    return rows if rows == 1 else rows + FULL_TILE


@njit(inline="always")
def count_tasks(blocks: Code, n_shares: Code, share: Code) -> Code:
    return n_shares + blocks - n_shares * share


@njit(inline="always")
def task_range(task: Code, n_shares: Code, share: Code) -> Code:
    """The blocks [first, end) of a task: the first ones are shares, all others one block each."""
    if task < n_shares:
        return task * share, (task + 1) * share
    first = n_shares * share + task - n_shares
    return first, first + 1


def unit_of(pack: int) -> int:
    """Outputs of a block that a task takes at least. Blocks of 64 are cut, of which small matrices
    have too few to share."""
    return pack // 2 if pack == 64 else pack


def shares_of(units: int, n_shares: int) -> dict[str, int]:
    """Arguments of a product: as many tasks are shares of the outputs that lie side by side, one
    for each thread. Who has done its own takes more of the rest, so that none is waited for for
    long."""
    share = units * 7 // 8 // n_shares if n_shares else 0
    return {"n_shares": n_shares if share else 0, "share": share}


class MatmulArguments(NamedTuple):
    x: int  # bfloat16 [rows, in_features]
    weight: int  # packed; see `multiply`
    bias: int  # bfloat16 [out_features], or 0
    other: int  # bfloat16 [rows, out_features], which is added or multiplied with; or 0
    out: int  # bfloat16 [rows, out_features]
    rows: int
    in_features: int
    out_features: int
    epilogue: int  # what follows the product: NONE, SWISH, ADD, MUL or GELU
    rows_per_task: int
    n_shares: int  # as in `task_range`, in units of outputs
    share: int
    ahead: int  # bytes: weights are fetched so long before they are read
    stays: int  # whether they stay in caches


_matmul_arguments = reader_of(MatmulArguments)


@cache
def matmul_kernel(pack: int) -> Kernel:
    """Rows times a matrix of bfloat16 that is packed by so many outputs.

    Of few rows memory is the bound: each weight is read once, and a thread that is held up is
    waited for no longer than a block takes. Of many a task's rows stay in a cache, and a tile's
    sums in registers. A sum is taken in the order of the inputs, whatever the tile.
    """

    unit = unit_of(pack)

    def body(block: Code) -> None:
        args = _matmul_arguments(block)
        n_rows, width, n = args.rows, args.in_features, args.out_features
        rows_per_task, ahead, stays = args.rows_per_task, args.ahead, args.stays
        x = carray(at_u16(args.x), (n_rows, width))
        even = width + width % 2
        rows = np.empty((padded_rows(rows_per_task), even), np.float32)
        sums = np.empty(FULL_TILE * pack, np.float32)
        units, loaded = (n + unit - 1) // unit, -1
        n_tasks = count_tasks(units, args.n_shares, args.share)
        while True:
            task = next_task(block)
            begin = task // n_tasks * rows_per_task
            if begin >= n_rows:
                break
            nth, last = task_range(task % n_tasks, args.n_shares, args.share)
            end = min(n_rows, begin + rows_per_task)
            if begin != loaded:
                for row in range(begin, end):
                    for i in range(width):
                        rows[row - begin, i] = to_float32(x[row, i])
                    rows[row - begin, width:] = 0
                loaded = begin
            while nth < last:
                first = nth * unit
                is_whole = first % pack == 0 and last - nth >= pack // unit
                outputs = pack if is_whole else unit
                weight = args.weight + 2 * (first - first % pack) * even + 4 * (first % pack)
                bias = args.bias + 2 * first if args.bias != 0 else 0
                count, row = min(outputs, n - first), begin
                while row < end:
                    own, left = rows.ctypes.data + 4 * (row - begin) * even, end - row
                    into = sums.ctypes.data
                    if is_whole:
                        tile = multiply_some(
                            weight, 0, own, even, 1, into, even, left,
                            pack, pack, 16, 0, ahead, stays,
                        )  # fmt: skip
                    else:
                        tile = multiply_some(
                            weight, 0, own, even, 1, into, even, left,
                            unit, pack, 16, 0, ahead, stays,
                        )  # fmt: skip
                    for i in range(min(tile, left)):
                        offset = 2 * ((row + i) * n + first)
                        other, out = args.other + offset, args.out + offset
                        given = sums[i * outputs : (i + 1) * outputs]
                        finish_row(given, bias, args.epilogue, other, out, count)
                    row += tile
                nth += outputs // unit

    return Kernel(body, MatmulArguments)
