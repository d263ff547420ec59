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
def activated(x: Code, kind: Code) -> Code:
    """The activation SWISH or GELU of a float32."""
    inner = x if kind == SWISH else GELU_FACTOR * (x + GELU_CUBIC * x * x * x)
    small = exp(-abs(inner))
    rise = np.float32(1) if inner >= 0 else small
    return x * (rise / (np.float32(1) + small))


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


_matmul_arguments = reader_of(MatmulArguments)


@cache
def matmul_kernel(pack: int) -> Kernel:
    """Rows times a matrix of bfloat16 that is packed by so many outputs.

    Of few rows memory is the bound: each weight is read once, and a thread that is held up is
    waited for no longer than a block takes. Of many a task's rows stay in a cache, and a tile's
    sums in registers. A sum is taken in the order of the inputs, whatever the tile.
    """

    def body(block: Code) -> None:
        args = _matmul_arguments(block)
        n_rows, width, n = args.rows, args.in_features, args.out_features
        rows_per_task = args.rows_per_task
        x = carray(at_u16(args.x), (n_rows, width))
        even = width + width % 2
        rows = np.zeros((rows_per_task + FULL_TILE, even), np.float32)
        sums = np.empty((FULL_TILE, pack), np.float32)
        blocks, loaded = (n + pack - 1) // pack, -1
        while True:
            task = next_task(block)
            begin, first = task // blocks * rows_per_task, task % blocks * pack
            if begin >= n_rows:
                break
            end = min(n_rows, begin + rows_per_task)
            if begin != loaded:
                for row in range(begin, end):
                    for i in range(width):
                        rows[row - begin, i] = to_float32(x[row, i])
                loaded = begin
            weight = args.weight + 2 * first * even
            bias = args.bias + 2 * first if args.bias != 0 else 0
            count, row = min(pack, n - first), begin
            while row < end:
                own, left = rows.ctypes.data + 4 * (row - begin) * even, end - row
                into = sums.ctypes.data
                tile = multiply_some(weight, 0, own, even, 1, into, even, left, pack, 16, 0)
                for nth in range(min(tile, left)):
                    offset = 2 * ((row + nth) * n + first)
                    other, out = args.other + offset, args.out + offset
                    finish_row(sums[nth], bias, args.epilogue, other, out, count)
                row += tile

    return Kernel(body, MatmulArguments)
