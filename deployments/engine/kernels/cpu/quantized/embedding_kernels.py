"""Rows of packed weights as bfloat16: embeddings share the weights of the output layer."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.pack_format import Planes, planes_of
from deployments.engine.kernels.cpu.simd import (
    PACK,
    Code,
    as_float32,
    at_f32,
    at_i8,
    at_i64,
    at_u8,
    at_u16,
    next_task,
    to_bfloat16,
    to_float32,
)
from deployments.engine.quantized.layout import FactorType


class EmbeddingArguments(NamedTuple):
    ids: int  # int64 [n]
    n: int
    weights: int  # blocks of quantized weights, as `pack_format` says
    stride: int  # bytes of a block
    width: int
    planes: int  # int64 [5], `described_planes` of codes
    table: int  # float32 [codes], what they stand for
    factors: int  # int64 [n_factors, 9]: offset, number, `described_factor` of each; scales first
    n_factors: int
    n_scales: int
    out: int  # bfloat16 [n, width]


_embedding_arguments = reader_of(EmbeddingArguments)
IN_PLANES = -1
FACTOR_NUMBERS = {
    dtype: number
    for number, dtype in enumerate(
        [
            *(torch.float32, torch.float16, torch.bfloat16),
            *(torch.uint8, torch.int8, torch.float8_e4m3fn),
        ]
    )
}


def described_planes(planes: Planes) -> tuple[int, ...]:
    """The bits of both planes; powers of 2: codes of a unit, those of a word, bytes of a word."""
    sizes = planes.unit, planes.word_codes, planes.word_bytes
    return planes.low_bits, planes.high_bits, *(size.bit_length() - 1 for size in sizes)


def described_factor(factor: FactorType) -> tuple[int, ...]:
    """Its type, or IN_PLANES; what its code 0 stands for, and its planes."""
    planes = planes_of(factor)
    if planes is None:
        return FACTOR_NUMBERS[factor.dtype], *(0,) * 6
    return IN_PLANES, factor.offset, *described_planes(planes)


@njit(error_model="numpy", fastmath=False)
def _factor(address: Code, kind: Code) -> Code:
    """The finite number of one of FACTOR_NUMBERS at an address, as float32."""
    if kind == 0:
        return carray(at_f32(address), (1,))[0]
    if kind == 3:
        return np.float32(carray(at_u8(address), (1,))[0])
    if kind == 4:
        return np.float32(carray(at_i8(address), (1,))[0])
    if kind == 2:
        return to_float32(carray(at_u16(address), (1,))[0])
    # Exponents have fewer bits: their bias is made up for by a product, which is exact.
    if kind == 1:
        bits = np.uint32(carray(at_u16(address), (1,))[0])
        number = as_float32((bits & np.uint32(0x7FFF)) << np.uint32(13)) * np.float32(2.0**112)
        return -number if bits >> np.uint32(15) else number
    bits = np.uint32(carray(at_u8(address), (1,))[0])
    number = as_float32((bits & np.uint32(0x7F)) << np.uint32(20)) * np.float32(2.0**120)
    return -number if bits >> np.uint32(7) else number


@njit(error_model="numpy", fastmath=False)
def _product(block: Code, lane: Code, factors: Code, group: Code, n_groups: Code) -> Code:
    """The product of a group's factors."""
    product = np.float32(1)
    for kind in range(len(factors)):
        offset, n, dtype, first = factors[kind, :4]
        nth = group * n // n_groups
        if dtype == IN_PLANES:
            code = _code(block + offset, lane, nth, factors[kind, 4:])
            product *= np.float32(np.int64(code) + first)
        else:
            size = 4 if dtype == 0 else 2 if dtype < 3 else 1
            product *= _factor(block + offset + (nth * PACK + lane) * size, dtype)
    return product


@njit(error_model="numpy")
def _field(word: Code, nth: Code, bits: Code, of_byte: Code) -> Code:
    """The nth code of a word of `1 << of_byte` bytes."""
    byte = carray(at_u8(word + (nth & ((1 << of_byte) - 1))), (1,))[0]
    down = (nth >> of_byte) * bits
    return (np.uint32(byte) >> np.uint32(down)) & np.uint32((1 << bits) - 1)


@njit(error_model="numpy")
def _code(codes: Code, lane: Code, i: Code, planes: Code) -> Code:
    """The code of an output's number in planes."""
    low_bits, high_bits = planes[0], planes[1]
    of_unit, of_word, of_byte = planes[2], planes[3], planes[4]
    word = PACK << of_byte  # bytes
    low_words = 1 << (of_unit - of_word)
    unit, rest = i >> of_unit, i & ((1 << of_unit) - 1)
    at = codes + unit * (low_words + (high_bits > 0)) * word + (lane << of_byte)
    within = rest & ((1 << of_word) - 1)
    code = _field(at + (rest >> of_word) * word, within, low_bits, of_byte)
    if high_bits:
        code |= _field(at + low_words * word, rest, high_bits, of_byte) << np.uint32(low_bits)
    return code


@njit(error_model="numpy", fastmath=False)
def _embed(
    out: Code, block: Code, lane: Code, table: Code, factors: Code, n_scales: Code, planes: Code
) -> None:
    """Writes one row as bfloat16. Each operation is rounded by itself."""
    scales, least = factors[:n_scales], factors[n_scales:]
    n_groups = scales[0, 1]
    size = len(out) // n_groups
    for group in range(n_groups):
        scale = _product(block, lane, scales, group, n_groups)
        shift = _product(block, lane, least, group, n_groups) if len(least) else np.float32(0)
        for i in range(group * size, (group + 1) * size):
            value = table[_code(block, lane, i, planes)] * scale
            out[i] = to_bfloat16(value + shift if len(least) else value)


@cache
def embedding_kernel() -> Kernel:
    """Reads rows out of a packed matrix."""

    def body(block: Code) -> None:
        args = _embedding_arguments(block)
        ids = carray(at_i64(args.ids), (args.n,))
        out = carray(at_u16(args.out), (args.n, args.width))
        table = carray(at_f32(args.table), (256,))
        factors = carray(at_i64(args.factors), (args.n_factors, 9))
        planes = carray(at_i64(args.planes), (5,))
        while True:
            token = next_task(block)
            if token >= args.n:
                break
            begin = args.weights + ids[token] // PACK * args.stride
            lane = ids[token] % PACK
            _embed(out[token], begin, lane, table, factors, args.n_scales, planes)

    return Kernel(body, EmbeddingArguments)
