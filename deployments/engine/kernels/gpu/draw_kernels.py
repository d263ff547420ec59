"""Triton kernel of the draw of a token by Gumbel noise.

The noise of a token is a function of its row's key and its id. Its operations are those of
`cpu/draw_kernels.py` in the same order. No multiplication may be fused with a sum, so that any
device has the same noise to the bit.
"""

from math import log

import triton
import triton.language as tl

LOG_2 = tl.constexpr(log(2))
SQRT_HALF = tl.constexpr(0x3FE6A09E667F3BCD)  # the bits of that float64
MANTISSA = tl.constexpr(52)  # bits
SLACK = tl.constexpr(1.001)  # more than all rounding of an estimate


@triton.jit
def _mix(x):
    """Does what `mix` of `engine/rng.py` does."""
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def natural_log(x):
    """The logarithm of a positive float64."""
    bits = x.to(tl.int64, bitcast=True)
    exponent = (bits - SQRT_HALF) >> MANTISSA
    part = (bits - (exponent << MANTISSA)).to(tl.float64, bitcast=True) - 1.0
    ratio = part / (part + 2.0)
    square = ratio * ratio
    series = square * (2.0 / 15.0) + (2.0 / 13.0)
    series = series * square + (2.0 / 11.0)
    series = series * square + (2.0 / 9.0)
    series = series * square + (2.0 / 7.0)
    series = series * square + (2.0 / 5.0)
    series = series * square + (2.0 / 3.0)
    return exponent.to(tl.float64) * LOG_2 + (ratio * 2.0 + ratio * (square * series))


@triton.jit
def gumbel_noise(bits):
    """The noise of 64 random bits each. uint64 -> float64"""
    uniform = ((bits >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16  # 2^-52
    return -natural_log(-natural_log(1.0 - uniform))


@triton.jit
def draw_kernel(
    logits,  # float32 [batch, vocab]
    row_stride,
    vocab,
    largest,  # float32 [batch], the largest logit of each row
    likeliest,  # int64 [batch], its token
    rows,  # int64 [n], numbers of those that draw
    keys,  # int64 [n]
    sums,  # float64 [n, blocks], the greatest one of each block
    token_ids,  # int64 [n, blocks], its token, the first of those that tie
    BLOCK: tl.constexpr,
):
    """One program for each row and block of tokens.

    Noise is -log(E) and E more than the uniform number that it is made of. So a token can't win
    where that number is more than exp(logit - best), for the sum `best` of any other token. Where
    a block has none that can, no noise is computed.
    """
    i, block = tl.program_id(0), tl.program_id(1)
    row = tl.load(rows + i)
    key = tl.load(keys + i).to(tl.uint64, bitcast=True)
    best = gumbel_noise(_mix(key + tl.load(likeliest + row).to(tl.uint64))).to(tl.float32)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    own = tl.load(logits + row * row_stride + ids, mask=ids < vocab, other=float("-inf"))
    below = own - tl.load(largest + row)
    bits = _mix(key + ids.to(tl.uint64))
    uniform = (bits >> 32).to(tl.float32) * 2.3283064365386963e-10  # 2^-32
    may_win = uniform <= tl.exp(below - best) * SLACK
    greatest, at = tl.full([], float("-inf"), tl.float64), tl.full([], 0, tl.int32)
    if tl.max(may_win.to(tl.int32), 0) > 0:
        totals = tl.where(may_win, below.to(tl.float64) + gumbel_noise(bits), float("-inf"))
        greatest, at = tl.max(totals, 0, return_indices=True)
    out = i * tl.num_programs(1) + block
    tl.store(sums + out, greatest)
    tl.store(token_ids + out, (block * BLOCK + at).to(tl.int64))
