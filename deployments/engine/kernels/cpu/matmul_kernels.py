"""Matrix products of bfloat16 on a CPU, compiled by numba.

Every task is computed in one order whatever else is in the batch, so what is beside a token and
which thread takes it change no bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, dequantize, multiply_some
from deployments.engine.kernels.cpu.simd import (
    LANES,
    Code,
    at_u16,
    exp,
    next_task,
    to_bfloat16,
    to_float32,
)

PACKS = (32, 64, 48, 16)  # how many outputs may lie side by side in a matrix of oneDNN's
NONE, SWISH, ADD, MUL = range(4)  # epilogues of a product


@njit(inline="always")
def _epilogue(sums: Code, bias: Code, kind: Code, other: Code, out: Code, count: Code) -> None:
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
            small = exp(-abs(sums[i]))
            rise = np.float32(1) if sums[i] >= 0 else small
            sums[i] *= rise / (np.float32(1) + small)
    elif kind == ADD:
        for i in range(count):
            sums[i] += to_float32(others[i])
    elif kind == MUL:
        for i in range(count):
            sums[i] *= to_float32(others[i])
    for i in range(count):
        outs[i] = to_bfloat16(sums[i])


class PackFormat(NamedTuple):
    """The layout of a packed matrix: its weights lie [out / pack, ...], filled up with zeros.

    bits: 16 for bfloat16, 8 and 4 for whole numbers.
    group: how many inputs share a scale where the weights have four bits.
    """

    pack: int
    bits: int = 16
    group: int = 0


class DequantizeArguments(NamedTuple):
    weight: int  # packed; see `multiply`
    scales: int
    out: int  # bfloat16 [out_features / out_pack, in_features / 2, out_pack, 2]
    in_features: int  # even
    out_features: int
    out_pack: int


_dequantize_arguments = reader_of(DequantizeArguments)


@njit(inline="always")
def _offset(output: Code, width: Code, pack: Code) -> Code:
    """How many bytes before an output's first pair of inputs others lie in a packed matrix."""
    return 2 * (output - output % pack) * width + 4 * (output % pack)


@cache
def dequantize_kernel(pack_format: PackFormat) -> Kernel:
    """A packed matrix of whole numbers as one of bfloat16, packed by another number of outputs."""
    pack, bits, group = pack_format

    def body(block: Code) -> None:
        args = _dequantize_arguments(block)
        width, n, out_pack = args.in_features, args.out_features, args.out_pack
        groups = width // group if group else 1
        while True:
            first = next_task(block) * pack
            if first >= n:
                break
            weight = args.weight + first * width * bits // 8
            scales = args.scales + 2 * first * groups * (16 // bits // 2)
            half = _offset(first, width, out_pack)
            other = _offset(first + LANES, width, out_pack) if first + LANES < n else half
            out = args.out
            dequantize(weight, scales, out + half, out + other, width, 4 * out_pack, bits, group)

    return Kernel(body, DequantizeArguments)


class MatmulArguments(NamedTuple):
    x: int  # bfloat16 [rows, in_features]
    weight: int  # packed; see `multiply`
    scales: int  # of the weights, or 0
    bias: int  # bfloat16 [out_features], or 0
    other: int  # bfloat16 [rows, out_features], which is added or multiplied with; or 0
    out: int  # bfloat16 [rows, out_features]
    rows: int
    in_features: int
    out_features: int
    epilogue: int  # what follows the product: NONE, SWISH, ADD or MUL
    rows_per_task: int


_matmul_arguments = reader_of(MatmulArguments)


@njit(inline="always")
def _load_rows(x: Code, begin: Code, end: Code, rows: Code, totals: Code, group: Code) -> None:
    """Rows [begin, end) of x as float32, and the totals of their groups of inputs."""
    width, n_groups = x.shape[1], totals.shape[1]
    for row in range(begin, end):
        for i in range(width):
            rows[row - begin, i] = to_float32(x[row, i])
        for g in range(n_groups):
            totals[row - begin, g] = rows[row - begin, g * group : g * group + group].sum()


@cache
def matmul_kernel(pack_format: PackFormat) -> Kernel:
    """Rows times a packed matrix; `multiply` says how the weights of a block lie.

    Of few rows memory is the bound: each weight is read once, and a thread that is held up is
    waited for no longer than a block takes. Of many a task's rows stay in a cache, and a tile's
    sums in registers. A sum is taken in the order of the inputs, whatever the tile.
    """
    pack, bits, group = pack_format

    def body(block: Code) -> None:
        args = _matmul_arguments(block)
        n_rows, width, n = args.rows, args.in_features, args.out_features
        rows_per_task = args.rows_per_task
        x = carray(at_u16(args.x), (n_rows, width))
        even = width + width % 2
        groups = width // group if group else 0
        rows = np.zeros((rows_per_task + FULL_TILE, even), np.float32)
        totals = np.zeros((rows_per_task + FULL_TILE, groups), np.float32)
        sums = np.empty((FULL_TILE, pack), np.float32)
        blocks, loaded = (n + pack - 1) // pack, -1
        while True:
            task = next_task(block)
            begin, first = task // blocks * rows_per_task, task % blocks * pack
            if begin >= n_rows:
                break
            end = min(n_rows, begin + rows_per_task)
            if begin != loaded:
                _load_rows(x, begin, end, rows, totals, group)
                loaded = begin
            weight = args.weight + first * even * bits // 8
            scales = args.scales + 2 * first * (2 * groups if group else 1)
            bias = args.bias + 2 * first if args.bias != 0 else 0
            count, row = min(pack, n - first), begin
            while row < end:
                own, left = rows.ctypes.data + 4 * (row - begin) * even, end - row
                own_totals = totals.ctypes.data + 4 * (row - begin) * groups
                into = sums.ctypes.data
                tile = multiply_some(
                    weight, scales, own, even, 1, own_totals, into, even, left, pack, bits, group
                )
                for nth in range(min(tile, left)):
                    offset = 2 * ((row + nth) * n + first)
                    other, out = args.other + offset, args.out + offset
                    _epilogue(sums[nth], bias, args.epilogue, other, out, count)
                row += tile

    return Kernel(body, MatmulArguments)
