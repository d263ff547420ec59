"""Matrix products of quantized weights on a CPU, compiled by numba for each format."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import BLOCK_WORDS, Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE
from deployments.engine.kernels.cpu.matmul_kernels import finish_row
from deployments.engine.kernels.cpu.pack_format import QuantizedFormat
from deployments.engine.kernels.cpu.quantized_ir import dequantize_block, multiply_tile
from deployments.engine.kernels.cpu.simd import (
    LANES,
    PACK,
    Code,
    at_u16,
    call,
    next_task,
    to_float32,
)


class DequantizeArguments(NamedTuple):
    weight: int  # packed
    stride: int  # bytes of a block
    first: int  # offsets of factors in a block
    second: int
    third: int
    fourth: int
    out: int  # bfloat16 [out_features / out_pack, in_features / 2, out_pack, 2]
    in_features: int  # a multiple of the format's unit
    out_features: int
    out_pack: int


_dequantize_arguments = reader_of(DequantizeArguments)


@njit(inline="always")
def _offset(output: Code, width: Code, pack: Code) -> Code:
    """How many bytes before an output's first pair of inputs others lie in a packed matrix."""
    return 2 * (output - output % pack) * width + 4 * (output % pack)


@cache
def dequantize_kernel(quantized: QuantizedFormat) -> Kernel:
    """A packed matrix of codes as one of bfloat16, packed by another number of outputs."""
    number = quantized.number

    def body(block: Code) -> None:
        args = _dequantize_arguments(block)
        width, n, out_pack = args.in_features, args.out_features, args.out_pack
        while True:
            first = next_task(block) * PACK
            if first >= n:
                break
            weight = args.weight + first // PACK * args.stride
            half = _offset(first, width, out_pack)
            other = _offset(first + LANES, width, out_pack) if first + LANES < n else half
            dequantize_block(
                weight,
                weight + args.first,
                weight + args.second,
                weight + args.third,
                weight + args.fourth,
                args.out + half,
                args.out + other,
                width,
                4 * out_pack,
                number,
            )

    return Kernel(body, DequantizeArguments)


class TileArguments(NamedTuple):
    """`multiply_quantized` says what they are."""

    codes: int
    first: int
    second: int
    third: int
    fourth: int
    x: int
    of_row: int
    totals: int
    sums: int
    width: int
    rows: int  # up to FULL_TILE


_tile_arguments = reader_of(TileArguments)


@cache
def tile_kernel(quantized: QuantizedFormat) -> Kernel:
    """Multiplies a few rows with a block of a format: all that is compiled for each format."""
    number = quantized.number

    def body(block: Code) -> None:
        args = _tile_arguments(block)
        multiply_tile(
            args.codes,
            args.first,
            args.second,
            args.third,
            args.fourth,
            args.x,
            args.of_row,
            args.totals,
            args.sums,
            args.width,
            args.rows,
            number,
        )

    return Kernel(body, TileArguments)


class QuantizedMatmulArguments(NamedTuple):
    tile: int  # address of a `tile_kernel`
    has_pairs: int  # whether it takes inputs as they are
    x: int  # bfloat16 [rows, in_features]
    weight: int  # packed
    stride: int  # bytes of a block
    first: int  # offsets of factors in a block
    second: int
    third: int
    fourth: int
    bias: int  # bfloat16 [out_features], or 0
    other: int  # bfloat16 [rows, out_features], which is added or multiplied with; or 0
    other_stride: int  # how many numbers after a row the next one is
    out: int  # bfloat16 [rows, out_features]
    out_stride: int  # as of `other`
    rows: int
    in_features: int
    filled_inputs: int  # of a block
    n_totals: int  # sums of inputs of each row
    out_features: int
    epilogue: int  # what follows the product: NONE, SWISH, ADD, MUL or GELU
    rows_per_task: int


_matmul_arguments = reader_of(QuantizedMatmulArguments)


@njit(inline="always")
def _load_row(x: Code, wide: Code, pairs: Code, totals: Code) -> None:
    """A row of x as float32 or as it is, where there is room for it, and the sums of its groups."""
    for i in range(min(len(x), len(wide))):
        wide[i] = to_float32(x[i])
    for i in range(min(len(x), len(pairs))):
        pairs[i] = x[i]
    group = len(x) // max(1, len(totals))
    for g in range(len(totals)):
        total = np.float32(0)
        for i in range(g * group, g * group + group):
            total += to_float32(x[i])
        totals[g] = total


@cache
def quantized_matmul_kernel() -> Kernel:
    """Rows times a packed matrix of codes; `matmul_kernel` says in which order."""

    def body(block: Code) -> None:
        args = _matmul_arguments(block)
        n_rows, n, filled = args.rows, args.out_features, args.filled_inputs
        rows_per_task, n_totals, is_paired = args.rows_per_task, args.n_totals, args.has_pairs != 0
        x = carray(at_u16(args.x), (n_rows, args.in_features))
        most = rows_per_task + FULL_TILE
        wide = np.zeros((most, 0 if is_paired else filled), np.float32)
        pairs = np.zeros((most, filled if is_paired else 0), np.uint16)
        totals = np.zeros((most, n_totals), np.float32)
        sums = np.empty((FULL_TILE, PACK), np.float32)
        inputs = pairs.ctypes.data if is_paired else wide.ctypes.data
        of_row = 2 * filled if is_paired else 4 * filled
        words = np.zeros(BLOCK_WORDS, np.int64)
        tile = _tile_arguments(words.ctypes.data)
        tile.of_row, tile.sums, tile.width = of_row, sums.ctypes.data, filled
        blocks, loaded = (n + PACK - 1) // PACK, -1
        while True:
            task = next_task(block)
            begin, first = task // blocks * rows_per_task, task % blocks * PACK
            if begin >= n_rows:
                break
            end = min(n_rows, begin + rows_per_task)
            if begin != loaded:
                for nth in range(end - begin):
                    _load_row(x[begin + nth], wide[nth], pairs[nth], totals[nth])
                loaded = begin
            weight = args.weight + first // PACK * args.stride
            tile.codes = weight
            tile.first, tile.second = weight + args.first, weight + args.second
            tile.third, tile.fourth = weight + args.third, weight + args.fourth
            bias = args.bias + 2 * first if args.bias != 0 else 0
            count = min(PACK, n - first)
            for row in range(begin, end, FULL_TILE):
                tile.rows = min(FULL_TILE, end - row)
                tile.x = inputs + (row - begin) * of_row
                tile.totals = totals.ctypes.data + 4 * (row - begin) * n_totals
                call(args.tile, words.ctypes.data)
                for nth in range(tile.rows):
                    other = args.other + 2 * ((row + nth) * args.other_stride + first)
                    out = args.out + 2 * ((row + nth) * args.out_stride + first)
                    finish_row(sums[nth], bias, args.epilogue, other, out, count)

    return Kernel(body, QuantizedMatmulArguments)
