"""Rows of packed weights as bfloat16: embeddings share the weights of the output layer."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.simd import (
    PACK,
    Code,
    as_float32,
    at_f32,
    at_i8,
    at_i64,
    at_u8,
    at_u16,
    at_u32,
    next_task,
    to_bfloat16,
    to_float32,
)


class EmbeddingArguments(NamedTuple):
    ids: int  # int64 [n]
    n: int
    weights: int  # blocks of quantized weights, as `pack_format` says
    stride: int  # bytes of a block
    width: int
    low_bits: int  # of the first plane; 0: codes are bytes of one input side by side
    high_bits: int  # of the second plane
    table: int  # float32 [codes], what they stand for
    factors: int  # int64 [n_factors, 3]: offset, type and number of each kind, scales first
    n_factors: int
    n_scales: int
    out: int  # bfloat16 [n, width]


_embedding_arguments = reader_of(EmbeddingArguments)
FACTOR_NUMBERS = {
    dtype: number
    for number, dtype in enumerate(
        [
            *(torch.float32, torch.float16, torch.bfloat16),
            *(torch.uint8, torch.int8, torch.float8_e4m3fn),
        ]
    )
}


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
        offset, dtype, n = factors[kind]
        at = (group * n // n_groups) * PACK + lane
        size = 4 if dtype == 0 else 2 if dtype < 3 else 1
        product *= _factor(block + offset + at * size, dtype)
    return product


@njit(error_model="numpy")
def _code(block: Code, lane: Code, i: Code, low_bits: Code, high_bits: Code) -> Code:
    """The code of a block's input and output."""
    if low_bits == 0:
        return np.uint32(carray(at_u8(block + i * PACK + lane), (1,))[0])
    per_word = 32 // low_bits
    unit, rest = divmod(i, 32 // (high_bits or low_bits))
    n_low = low_bits // (high_bits or low_bits)  # words of the lower plane in a unit
    words = block + 4 * unit * (n_low + (high_bits > 0)) * PACK + 4 * lane
    low = carray(at_u32(words + rest // per_word * 4 * PACK), (1,))[0]
    low >>= np.uint32(rest % 4 * 8 + rest % per_word // 4 * low_bits)
    code = low & np.uint32((1 << low_bits) - 1)
    if high_bits:
        high = carray(at_u32(words + 4 * n_low * PACK), (1,))[0]
        high >>= np.uint32(rest % 4 * 8 + rest // 4 * high_bits)
        code |= (high & np.uint32((1 << high_bits) - 1)) << np.uint32(low_bits)
    return code


@njit(error_model="numpy", fastmath=False)
def _embed(
    out: Code, block: Code, lane: Code, table: Code, factors: Code, n_scales: Code, bits: Code
) -> None:
    """Writes one row as bfloat16. Each operation is rounded by itself."""
    scales, least = factors[:n_scales], factors[n_scales:]
    n_groups = scales[0, 2]
    size = len(out) // n_groups
    for group in range(n_groups):
        scale = _product(block, lane, scales, group, n_groups)
        shift = _product(block, lane, least, group, n_groups) if len(least) else np.float32(0)
        for i in range(group * size, (group + 1) * size):
            value = table[_code(block, lane, i, bits[0], bits[1])] * scale
            out[i] = to_bfloat16(value + shift if len(least) else value)


@cache
def embedding_kernel() -> Kernel:
    """Reads rows out of a packed matrix."""

    def body(block: Code) -> None:
        args = _embedding_arguments(block)
        ids = carray(at_i64(args.ids), (args.n,))
        out = carray(at_u16(args.out), (args.n, args.width))
        table = carray(at_f32(args.table), (256,))
        factors = carray(at_i64(args.factors), (args.n_factors, 3))
        bits = args.low_bits, args.high_bits
        while True:
            token = next_task(block)
            if token >= args.n:
                break
            begin = args.weights + ids[token] // PACK * args.stride
            lane = ids[token] % PACK
            _embed(out[token], begin, lane, table, factors, args.n_scales, bits)

    return Kernel(body, EmbeddingArguments)
