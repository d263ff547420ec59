"""The draw of a token by Gumbel noise, compiled by numba.

The noise of a token is a function of its row's key and its id. Each operation is rounded by itself,
and they are those of `gpu/draw_kernels.py` in the same order: any device has the same noise to the
bit.
"""

from functools import cache
from math import inf, log
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.simd import (
    LOG2_E,
    Code,
    as_bits64,
    as_float32,
    as_float64,
    at_f32,
    at_f64,
    at_i64,
    at_u64,
    next_task,
)

BLOCK = 128  # tokens that are looked at together
LEAST_NOISE, GREATEST_NOISE = -3.7, 36.8  # all noise is between the two
LOG_2 = log(2)
SQRT_HALF = np.uint64(0x3FE6A09E667F3BCD)  # the bits of that float64
MANTISSA = np.uint64(52)  # bits
# An exponent of a float32, and that of 2^32. Rounding takes away less than is added here.
EXPONENT, RANGE = np.float32(1 << 23), np.float32((127 + 32 << 23) + (1 << 12))


@njit(error_model="numpy", inline="always")
def _mix(x: Code) -> Code:
    """Does what `mix` of `engine/rng.py` does."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# Without `fastmath=False` a function has the flags of the kernel that it is compiled for.
@njit(error_model="numpy", fastmath=False)
def natural_log(x: Code) -> Code:
    """The logarithm of a positive float64, to some 1e-14 of it."""
    bits = as_bits64(x)
    exponent = np.int64(bits - SQRT_HALF) >> np.int64(MANTISSA)
    part = as_float64(bits - (np.uint64(exponent) << MANTISSA)) - 1.0
    ratio = part / (part + 2.0)
    square = ratio * ratio
    series = 2.0 / 15.0
    series = series * square + 2.0 / 13.0
    series = series * square + 2.0 / 11.0
    series = series * square + 2.0 / 9.0
    series = series * square + 2.0 / 7.0
    series = series * square + 2.0 / 5.0
    series = series * square + 2.0 / 3.0
    return np.float64(exponent) * LOG_2 + (ratio * 2.0 + ratio * (square * series))


@njit(error_model="numpy", fastmath=False)
def gumbel_noise(bits: Code) -> Code:
    """The noise of 64 random bits, of which 52 are used. float64"""
    uniform = (np.float64(bits >> np.uint64(12)) + 0.5) * 2.0**-52
    return -natural_log(-natural_log(1.0 - uniform))


@njit(error_model="numpy", inline="always")
def _may_win(below: Code, threshold: Code, bits: Code) -> Code:
    """False where a token that is `below` the largest logit has no more than the best sum so far.

    Its noise is -log(E) and E more than the uniform number that it is made of. So it has less where
    that number is more than exp(below - best). The exponential function is estimated from above, by
    a straight line between powers of two.
    """
    reach = np.int32(max(below * (LOG2_E * EXPONENT) + threshold, np.float32(0)))
    return np.float32(np.uint32(bits >> np.uint64(32))) <= as_float32(np.uint32(reach))


@njit(error_model="numpy", inline="always")
def _threshold(best: Code) -> Code:
    return RANGE - np.float32(best) * LOG2_E * EXPONENT


@njit(error_model="numpy")
def _has_candidate(block: Code, largest: Code, best: Code, key: Code) -> Code:
    """Whether any token of a block [BLOCK] may win."""
    least = np.float32(best - GREATEST_NOISE)
    found = np.uint32(0)
    for i in range(BLOCK):
        found |= np.uint32(block[i] - largest > least)
    if found == 0:
        return False
    threshold = _threshold(best)
    found = np.uint32(0)
    for i in range(BLOCK):
        found |= np.uint32(_may_win(block[i] - largest, threshold, _mix(key + np.uint64(i))))
    return found != 0


@njit(error_model="numpy", fastmath=False)
def draw_between(logits: Code, largest: Code, key: Code, begin: Code, end: Code) -> Code:
    """The token between two whose logit and noise are the most together, the first of those that
    tie, and their sum. Any token, and a sum that is less than those of others, where all are so far
    below `largest` that they can't win, or it is not finite.

    largest: of the row's logits [vocab].
    """
    token_id, best = begin, LEAST_NOISE
    if not -inf < largest < inf:
        return token_id, best
    for start in range(begin, end, BLOCK):
        block, first = logits[start : min(start + BLOCK, end)], key + np.uint64(start)
        if len(block) == BLOCK and not _has_candidate(block, largest, best, first):
            continue
        for i in range(len(block)):
            below, bits = block[i] - largest, _mix(first + np.uint64(i))
            if _may_win(below, _threshold(best), bits):
                total = np.float64(below) + gumbel_noise(bits)
                if total > best:
                    token_id, best = start + i, total
    return token_id, best


class DrawArguments(NamedTuple):
    logits: int  # float32 [batch, vocab]
    row_stride: int  # in numbers
    vocab: int
    largest: int  # float32 [batch], the largest logit of each row
    rows: int  # int64 [n], numbers of those that draw
    keys: int  # uint64 [n]
    n: int
    n_parts: int  # of a row, each of whole blocks
    sums: int  # float64 [n, parts], the greatest one of each part
    token_ids: int  # int64 [n, parts], its token


_draw_arguments = reader_of(DrawArguments)


@cache
def draw_kernel() -> Kernel:
    """Draws a token for each part of some rows."""

    def body(block: Code) -> None:
        args = _draw_arguments(block)
        n, n_parts, vocab = args.n, args.n_parts, args.vocab
        rows, keys = carray(at_i64(args.rows), (n,)), carray(at_u64(args.keys), (n,))
        sums = carray(at_f64(args.sums), (n * n_parts,))
        token_ids = carray(at_i64(args.token_ids), (n * n_parts,))
        size = -(-vocab // (n_parts * BLOCK)) * BLOCK
        while True:
            task = next_task(block)
            if task >= n * n_parts:
                break
            row, key, begin = rows[task // n_parts], keys[task // n_parts], task % n_parts * size
            logits = carray(at_f32(args.logits + 4 * row * args.row_stride), (vocab,))
            largest = carray(at_f32(args.largest + 4 * row), (1,))[0]
            end = min(begin + size, vocab)
            token_ids[task], sums[task] = draw_between(logits, largest, key, begin, end)

    return Kernel(body, DrawArguments)
