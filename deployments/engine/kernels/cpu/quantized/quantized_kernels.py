"""Matrix products of quantized weights on a CPU, compiled by numba for each format."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import BLOCK_WORDS, Kernel, reader_of
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE
from deployments.engine.kernels.cpu.matmul_kernels import (
    count_tasks,
    finish_row,
    padded_rows,
    task_range,
)
from deployments.engine.kernels.cpu.pack_format import QuantizedFormat
from deployments.engine.kernels.cpu.quantized.integer_ir import largest_bits, store_integers
from deployments.engine.kernels.cpu.quantized.quantized_ir import (
    TileArguments,
    dequantize_block,
    multiply_tile,
)
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
                args.stride,
                args.out + half,
                args.out + other,
                width,
                4 * out_pack,
                number,
            )

    return Kernel(body, DequantizeArguments)


tile_arguments = reader_of(TileArguments)


@cache
def tile_kernel(quantized: QuantizedFormat) -> Kernel:
    """Multiplies a few rows with a block of a format: all that is compiled for each format."""
    number = quantized.number

    def body(block: Code) -> None:
        multiply_tile(block, tile_arguments(block).rows, number)

    return Kernel(body, TileArguments)


class QuantizedMatmulArguments(NamedTuple):
    tile: int  # address of a `tile_kernel`
    inputs: int  # how it takes them: FLOATS, PAIRS or INTEGERS
    input_group: int  # integers that have a scale of their own
    offset: int  # what is added to the bytes of codes, and
    unit: float  # what these numbers are multiplied with, where inputs are integers
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
    n_shares: int  # tasks of some rows that are `share` blocks each; those behind them are one
    share: int
    ahead: int  # bytes: codes are fetched so long before they are read
    stays: int  # whether they stay in caches


_matmul_arguments = reader_of(QuantizedMatmulArguments)

FLOATS, PAIRS, INTEGERS = range(3)
LARGEST = np.float32(127 * 256)  # integer that an input becomes
TINY = np.float32(1e-33)  # smaller inputs become 0: their scale would be no normal number


@njit(inline="always")
def _load_floats(x: Code, wide: Code) -> None:
    for i in range(len(x)):
        wide[i] = to_float32(x[i])
    wide[len(x) :] = 0


@njit(inline="always")
def _load_pairs(x: Code, pairs: Code) -> None:
    for i in range(len(x)):
        pairs[i] = x[i]
    pairs[len(x) :] = 0


@njit(inline="always")
def _load_integers(
    x: Code, both: Code, scales: Code, starts: Code, group: Code, offset: Code, unit: Code
) -> None:
    """Inputs as integers, the upper bytes of all and then the lower ones; each group has its scale,
    and its sum times the offset."""
    width = len(both) // 2
    high, low = both[:width], both[width:]
    for g in range(len(scales)):
        first, end = g * group, min((g + 1) * group, len(x))
        vectors = (end - first) // LANES * LANES
        own = x[first:end]
        most = largest_bits(own.ctypes.data, vectors)
        for i in range(vectors, len(own)):
            most = max(most, own[i] & np.uint16(0x7FFF))
        largest = to_float32(most)
        by = LARGEST / largest if largest > TINY else np.float32(0)
        total = store_integers(
            own.ctypes.data, high[first:].ctypes.data, low[first:].ctypes.data, by, vectors
        )
        for i in range(first + vectors, end):
            whole = np.int32(np.rint(to_float32(x[i]) * by))
            upper = (whole + np.int32(128)) >> np.int32(8)
            high[i] = upper
            low[i] = whole - (upper << np.int32(8))
            total += whole
        for i in range(end, min((g + 1) * group, width)):
            high[i] = low[i] = 0
        scales[g] = largest * (unit / LARGEST)
        starts[g] = total * offset


@njit(inline="always")
def _sum_groups(x: Code, totals: Code) -> None:
    group = len(x) // max(1, len(totals))
    for g in range(len(totals)):
        total = np.float32(0)
        for i in range(g * group, (g + 1) * group):
            total += to_float32(x[i])
        totals[g] = total


@njit(inline="always")
def room_for(rows: Code, args: Code) -> Code:
    """Memory for so many rows of inputs of a matrix, as `load_row` fills it."""
    kind, filled = args.inputs, args.filled_inputs
    most = padded_rows(rows)
    n_scales = (filled + args.input_group - 1) // args.input_group if kind == INTEGERS else 0
    return (
        np.empty((most, filled if kind == FLOATS else 0), np.float32),
        np.empty((most, filled if kind != FLOATS else 0), np.uint16),
        np.empty((most, args.n_totals), np.float32),
        np.empty((most, n_scales), np.float32),
        np.empty((most, n_scales), np.int32),
    )


@njit(inline="always")
def load_row(x: Code, args: Code, nth: Code, room: Code) -> None:
    """A row of bfloat16 as the tile of a matrix takes it, in the nth place of `room_for` rows."""
    wide, pairs, totals, scales, starts = room
    if args.inputs == FLOATS:
        _load_floats(x, wide[nth])
    elif args.inputs == PAIRS:
        _load_pairs(x, pairs[nth])
    else:
        offset, unit = np.int32(args.offset), np.float32(args.unit)
        both = pairs[nth].view(np.int8)
        _load_integers(x, both, scales[nth], starts[nth], args.input_group, offset, unit)
    _sum_groups(x, totals[nth])


@njit(inline="always")
def set_up(tile: Code, args: Code, sums: Code) -> None:
    """Tells a matrix's tile once how to read it, and where sums go."""
    of_number = 4 if args.inputs == FLOATS else 2
    tile.of_row, tile.width = of_number * args.filled_inputs, args.filled_inputs
    tile.sums, tile.stride = sums.ctypes.data, args.stride


@njit(inline="always")
def take_rows(tile: Code, args: Code, nth: Code, rows: Code, room: Code) -> None:
    """Lets the tile take `rows` of the inputs in `room`, from the nth one on."""
    wide, pairs, totals, scales, starts = room
    inputs = wide.ctypes.data if args.inputs == FLOATS else pairs.ctypes.data
    tile.rows, tile.x = rows, inputs + nth * tile.of_row
    tile.totals = totals.ctypes.data + 4 * nth * totals.shape[1]
    tile.scales = scales.ctypes.data + 4 * nth * scales.shape[1]
    tile.starts = starts.ctypes.data + 4 * nth * starts.shape[1]


@njit(inline="always")
def take_block(tile: Code, args: Code, weight: Code) -> None:
    """Lets the tile take the block at an address."""
    tile.codes = weight
    tile.first, tile.second = weight + args.first, weight + args.second
    tile.third, tile.fourth = weight + args.third, weight + args.fourth


@cache
def quantized_matmul_kernel() -> Kernel:
    """Rows times a matrix of quantized weights, as `matmul_kernel` does it."""

    def body(block: Code) -> None:
        args = _matmul_arguments(block)
        n_rows, n, rows_per_task = args.rows, args.out_features, args.rows_per_task
        x = carray(at_u16(args.x), (n_rows, args.in_features))
        room = room_for(rows_per_task, args)
        sums = np.empty((FULL_TILE, PACK), np.float32)
        words = np.zeros(BLOCK_WORDS, np.int64)
        tile = tile_arguments(words.ctypes.data)
        set_up(tile, args, sums)
        tile.ahead, tile.stays = args.ahead, args.stays
        blocks, loaded = (n + PACK - 1) // PACK, -1
        n_tasks = count_tasks(blocks, args.n_shares, args.share)
        while True:
            task = next_task(block)
            begin = task // n_tasks * rows_per_task
            if begin >= n_rows:
                break
            block_begin, last = task_range(task % n_tasks, args.n_shares, args.share)
            end = min(n_rows, begin + rows_per_task)
            if begin != loaded:
                for row in range(end - begin):
                    load_row(x[begin + row], args, row, room)
                loaded = begin
            for nth in range(block_begin, last):
                first = nth * PACK
                take_block(tile, args, args.weight + nth * args.stride)
                bias = args.bias + 2 * first if args.bias != 0 else 0
                count = min(PACK, n - first)
                for row in range(begin, end, FULL_TILE):
                    take_rows(tile, args, row - begin, min(FULL_TILE, end - row), room)
                    call(args.tile, words.ctypes.data)
                    for i in range(tile.rows):
                        other = args.other + 2 * ((row + i) * args.other_stride + first)
                        out = args.out + 2 * ((row + i) * args.out_stride + first)
                        finish_row(sums[i], bias, args.epilogue, other, out, count)

    return Kernel(body, QuantizedMatmulArguments)
