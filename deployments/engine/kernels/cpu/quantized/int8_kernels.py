"""Products of many rows with quantized weights on a CPU: inputs are rounded to 8 bits."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import BLOCK_WORDS, Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_kernels import finish_row
from deployments.engine.kernels.cpu.pack_format import ALIGNMENT, QuantizedFormat
from deployments.engine.kernels.cpu.quantized.int8_ir import (
    INT8_ROWS,
    Int8TileArguments,
    UnpackArguments,
    multiply_int8,
    unpack_block,
)
from deployments.engine.kernels.cpu.quantized.integer_ir import largest_bits, store_bytes
from deployments.engine.kernels.cpu.quantized.quantized_kernels import TINY
from deployments.engine.kernels.cpu.simd import (
    LANES,
    PACK,
    Code,
    at_f32,
    at_i8,
    at_i32,
    at_u16,
    call,
    fetch,
    next_task,
    to_float32,
)

LARGEST_BYTE = np.float32(127)  # that an input becomes


class RoundArguments(NamedTuple):
    x: int  # bfloat16 [rows, in_features]
    rows: int
    in_features: int
    width: int  # of a row of bytes; a multiple of a group
    group: int  # inputs
    span: int  # groups that share a scale
    offset: int  # of the bytes of codes
    bytes: int  # the rest is as in Int8TileArguments
    starts: int
    totals: int
    scales: int


_round_arguments = reader_of(RoundArguments)


@njit(inline="always")
def _largest(x: Code) -> Code:
    vectors = len(x) // LANES * LANES
    most = largest_bits(x.ctypes.data, vectors)
    for i in range(vectors, len(x)):
        most = max(most, x[i] & np.uint16(0x7FFF))
    return to_float32(most)


@njit(inline="always")
def _round(x: Code, by: Code, out: Code) -> Code:
    """Writes the nearest bytes of `x * by`, and zeros behind them. Returns their sum."""
    vectors = len(x) // LANES * LANES
    total = store_bytes(x.ctypes.data, out.ctypes.data, by, vectors)
    for i in range(vectors, len(x)):
        whole = np.int32(np.rint(to_float32(x[i]) * by))
        out[i] = whole
        total += whole
    out[len(x) :] = 0
    return total


@cache
def round_kernel() -> Kernel:
    """Rounds inputs to 8 bits. Each span of groups has a scale of its own."""

    def body(block: Code) -> None:
        args = _round_arguments(block)
        group, span = args.group, args.span
        n_groups = args.width // group
        n_spans = (n_groups + span - 1) // span
        x = carray(at_u16(args.x), (args.rows, args.in_features))
        out = carray(at_i8(args.bytes), (args.rows, args.width))
        starts = carray(at_i32(args.starts), (args.rows, n_groups))
        totals = carray(at_f32(args.totals), (args.rows, n_groups))
        scales = carray(at_f32(args.scales), (args.rows, n_spans))
        while True:
            row = next_task(block)
            if row >= args.rows:
                break
            for nth in range(n_spans):
                first = nth * span
                end = min(first + span, n_groups)
                largest = _largest(x[row, first * group : end * group])
                by = LARGEST_BYTE / largest if largest > TINY else np.float32(0)
                scales[row, nth] = largest / LARGEST_BYTE
                for g in range(first, end):
                    inputs = slice(g * group, (g + 1) * group)
                    total = _round(x[row, inputs], by, out[row, inputs])
                    starts[row, g] = total * args.offset
                    totals[row, g] = total

    return Kernel(body, RoundArguments)


unpack_arguments = reader_of(UnpackArguments)
tile_arguments = reader_of(Int8TileArguments)


@cache
def unpack_kernel(quantized: QuantizedFormat) -> Kernel:
    """Unpacks a block of a format."""
    number = quantized.number

    def body(block: Code) -> None:
        unpack_block(block, number)

    return Kernel(body, UnpackArguments)


@cache
def int8_tile_kernel(group: int, has_leasts: int) -> Kernel:
    """Multiplies rows with an unpacked block."""

    def body(block: Code) -> None:
        multiply_int8(block, group, has_leasts)

    return Kernel(body, Int8TileArguments)


class Int8MatmulArguments(NamedTuple):
    unpack: int  # address of an `unpack_kernel`
    tile: int  # address of an `int8_tile_kernel`
    x: int  # as in Int8TileArguments, with rows filled up to a multiple of INT8_ROWS
    width: int
    starts: int
    totals: int
    x_scales: int
    n_groups: int
    n_spans: int
    span: int
    weight: int  # packed
    stride: int  # bytes of a block
    first: int  # offsets of factors in a block
    second: int
    third: int
    fourth: int
    filled_inputs: int  # of a block
    n_scales: int  # as in UnpackArguments
    n_copies: int
    bias: int  # bfloat16 [out_features], or 0
    other: int  # bfloat16 [rows, out_features], which is added or multiplied with; or 0
    other_stride: int  # how many numbers after a row the next one is
    out: int  # bfloat16 [rows, out_features]
    out_stride: int  # as of `other`
    rows: int
    out_features: int
    epilogue: int  # what follows the product: NONE, SWISH, ADD, MUL or GELU
    rows_per_task: int  # a multiple of INT8_ROWS


_matmul_arguments = reader_of(Int8MatmulArguments)


@njit(inline="always")
def _set_up(unpacking: Code, tile: Code, args: Code, panel: Code, sums: Code) -> None:
    """Tells once where a block is unpacked to, how it is read, and where sums go."""
    start = panel.ctypes.data
    start += -start % ALIGNMENT
    unpacking.stride, unpacking.width = args.stride, args.filled_inputs
    unpacking.n_scales, unpacking.n_copies = args.n_scales, args.n_copies
    unpacking.bytes = tile.bytes = start
    unpacking.scales = tile.scales = start + args.width * PACK
    unpacking.leasts = tile.leasts = tile.scales + args.n_groups * PACK * 4
    tile.width, tile.n_groups = args.width, args.n_groups
    tile.n_spans, tile.span, tile.sums = args.n_spans, args.span, sums.ctypes.data


@njit(inline="always")
def _take_block(unpacking: Code, args: Code, weight: Code) -> None:
    unpacking.codes = weight
    unpacking.first, unpacking.second = weight + args.first, weight + args.second
    unpacking.third, unpacking.fourth = weight + args.third, weight + args.fourth


@njit(inline="always")
def _take_rows(tile: Code, args: Code, row: Code) -> None:
    tile.x = args.x + row * args.width
    tile.starts = args.starts + 4 * row * args.n_groups
    tile.totals = args.totals + 4 * row * args.n_groups
    tile.x_scales = args.x_scales + 4 * row * args.n_spans


@njit(inline="always")
def _fetch_others(args: Code, row: Code, end: Code, first: Code) -> None:
    """Fetches what a tile's results are added to or multiplied with: each row is pages away."""
    if args.other != 0:
        for i in range(row, end):
            fetch(args.other + 2 * (i * args.other_stride + first))


@cache
def int8_matmul_kernel() -> Kernel:
    """Rounded rows times a matrix of quantized weights, as `quantized_matmul_kernel` does it.

    A task unpacks a block into memory that a cache holds, and multiplies many rows with it.
    """

    def body(block: Code) -> None:
        args = _matmul_arguments(block)
        n_rows, n = args.rows, args.out_features
        panel = np.empty(PACK * (args.width + 8 * args.n_groups) + ALIGNMENT, np.uint8)
        sums = np.empty((INT8_ROWS, PACK), np.float32)
        unpack_words = np.zeros(BLOCK_WORDS, np.int64)
        tile_words = np.zeros(BLOCK_WORDS, np.int64)
        unpacking = unpack_arguments(unpack_words.ctypes.data)
        tile = tile_arguments(tile_words.ctypes.data)
        _set_up(unpacking, tile, args, panel, sums)
        blocks = (n + PACK - 1) // PACK
        while True:
            task = next_task(block)
            begin = task // blocks * args.rows_per_task
            if begin >= n_rows:
                break
            nth = task % blocks
            first = nth * PACK
            _take_block(unpacking, args, args.weight + nth * args.stride)
            call(args.unpack, unpack_words.ctypes.data)
            bias = args.bias + 2 * first if args.bias != 0 else 0
            count, end = min(PACK, n - first), min(n_rows, begin + args.rows_per_task)
            for row in range(begin, end, INT8_ROWS):
                _take_rows(tile, args, row)
                _fetch_others(args, row, min(end, row + INT8_ROWS), first)
                call(args.tile, tile_words.ctypes.data)
                for i in range(min(INT8_ROWS, end - row)):
                    other = args.other + 2 * ((row + i) * args.other_stride + first)
                    out = args.out + 2 * ((row + i) * args.out_stride + first)
                    finish_row(sums[i], bias, args.epilogue, other, out, count)

    return Kernel(body, Int8MatmulArguments)
