"""Matrix products of bfloat16 on a CPU, compiled by numba.

Every task is computed in one order whatever else is in the batch, so what is beside a token and
which thread takes it change no bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import WORDS, Kernel
from deployments.engine.kernels.cpu.matmul_ir import MOST, multiply_some
from deployments.engine.kernels.cpu.matmul_ir import STAMP as PRODUCT_STAMP
from deployments.engine.kernels.cpu.simd import (
    Code,
    at_i8,
    at_i64,
    at_u8,
    at_u16,
    down,
    exp,
    take,
    up,
)

PACKS = (32, 64, 48, 16)  # how many outputs may lie side by side in a matrix of oneDNN's
NONE, SWISH, ADD, MUL = range(4)  # what may follow a product


@njit(inline="always")
def _finish(sums: Code, bias: Code, then: Code, beside: Code, place: Code, count: Code) -> None:
    """What follows a product: of one row's sums, at addresses of bfloat16 or 0."""
    other, out = carray(at_u16(beside), (count,)), carray(at_u16(place), (count,))
    if bias != 0:
        biases = carray(at_u16(bias), (count,))
        for i in range(count):
            sums[i] += up(biases[i])
    if then == SWISH:
        for i in range(count):
            small = exp(-abs(sums[i]))
            rise = np.float32(1) if sums[i] >= 0 else small
            sums[i] *= rise / (np.float32(1) + small)
    elif then == ADD:
        for i in range(count):
            sums[i] += up(other[i])
    elif then == MUL:
        for i in range(count):
            sums[i] *= up(other[i])
    for i in range(count):
        out[i] = down(sums[i])


class Form(NamedTuple):
    """Of the weights of a packed matrix, which lie [out / pack, ...], filled up with zeros.

    bits: 16 for bfloat16, 8 and 4 for whole numbers.
    group: inputs of a number of four bits that share a scale.
    """

    pack: int
    bits: int = 16
    group: int = 0


@cache
def widen_kernel(form: Form) -> Kernel:
    """A packed matrix of whole numbers as bfloat16 [in, out].

    Arguments: weight, scales, out, in, out features.
    """
    pack, bits, group = form

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        width, n = a[4], a[5]
        even = width + width % 2
        out = carray(at_u16(a[3]), (width, n))
        groups = width // group if group else 1
        while True:
            nth = take(block)
            first = nth * pack
            if first >= n:
                break
            place = a[1] + first * even * bits // 8
            bytes_, whole = carray(at_u8(place), (even, pack)), carray(at_i8(place), (even, pack))
            scales = carray(
                at_u16(a[2] + 2 * first * groups * (16 // bits // 2)), (groups, 2, pack)
            )
            for i in range(width):
                for j in range(min(pack, n - first)):
                    if group == 0:
                        value = np.float32(whole[i, j]) * up(scales[0, 0, j])
                    else:
                        number = (bytes_[i // 2, j] >> np.uint8(4 * (i % 2))) & np.uint8(15)
                        step, least = scales[i // group, 0, j], scales[i // group, 1, j]
                        value = np.float32(number) * up(step) + up(least)
                    out[i, first + j] = down(value)

    return Kernel(body, "qqqqq")


@cache
def product_kernel(form: Form) -> Kernel:
    """Rows times a packed matrix; `multiply` says how the weights of a block lie.

    Of few rows memory is the bound: each weight is read once, and a thread that is held up is
    waited for no longer than a block takes. Of many a task's rows stay in a cache, and a tile's
    sums in registers. A sum is taken in the order of the inputs, whatever the tile.

    Arguments: x, weight, its scales or 0, bias or 0, other or 0, out, rows, in, out features, what
    follows the product, rows of one task.
    """
    pack, bits, group = form

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        rows, width, n, then, each = a[7], a[8], a[9], a[10], a[11]
        given = carray(at_u16(a[1]), (rows, width))
        even = width + width % 2
        groups = width // group if group else 0
        x = np.zeros((each + MOST, even), np.float32)
        totals = np.zeros((each + MOST, groups), np.float32)
        sums = np.empty((MOST, pack), np.float32)
        blocks, held = (n + pack - 1) // pack, -1
        while True:
            taken = take(block)
            begin, nth_block = taken // blocks * each, taken % blocks
            if begin >= rows:
                break
            end, first = min(rows, begin + each), nth_block * pack
            if begin != held:
                held = begin
                for row in range(begin, end):
                    for i in range(width):
                        x[row - begin, i] = up(given[row, i])
                    for g in range(groups):
                        totals[row - begin, g] = x[row - begin, g * group : g * group + group].sum()
            weight = a[2] + first * even * bits // 8
            scales = a[3] + 2 * first * (2 * groups if group else 1)
            count, row = min(pack, n - first), begin
            while row < end:
                own, left = x.ctypes.data + 4 * (row - begin) * even, end - row
                own_totals = totals.ctypes.data + 4 * (row - begin) * groups
                into = sums.ctypes.data
                tile = multiply_some(
                    weight, scales, own, even, 1, own_totals, into, even, left, pack, bits, group
                )
                for nth in range(min(tile, left)):
                    place = 2 * ((row + nth) * n + first)
                    bias = a[4] + 2 * first if a[4] != 0 else 0
                    _finish(sums[nth], bias, then, a[5] + place, a[6] + place, count)
                row += tile

    body.__qualname__ += f"_{PRODUCT_STAMP}"
    return Kernel(body, "qqqqqqqqqqq")
