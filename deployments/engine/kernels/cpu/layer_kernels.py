"""Kernels between the matrix products of a step and before them, for bfloat16 on a CPU, compiled by
numba.

torch runs some fifteen operations a layer for them. At few rows they took as long as the products
(tests/bench/RESULTS.md): each passes through Python and a dispatcher, most on one core.

Every task is computed in one order whatever else is in the batch, so what is beside a token and
which thread takes it change no bit.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.layer_ir import (
    copy_bytes,
    sum_squares,
    turn_halves,
    write_normed,
)
from deployments.engine.kernels.cpu.matmul_kernels import GELU, SWISH, activated
from deployments.engine.kernels.cpu.simd import (
    LANES,
    Code,
    at_i64,
    at_u16,
    next_task,
    to_bfloat16,
    to_float32,
)


class NormArguments(NamedTuple):
    x: int  # bfloat16 [tokens, width]
    weight: int  # bfloat16 [width]
    residual: int  # bfloat16 [tokens, width], which is added; or 0
    out: int  # bfloat16 [tokens, width]
    tokens: int
    width: int
    tokens_per_task: int
    epsilon: float
    plus: float  # what is added to the weight


_norm_arguments = reader_of(NormArguments)


@njit(inline="always")
def _norm(
    x: Code, weight: Code, epsilon: Code, plus: Code, residual: Code, out: Code, width: Code
) -> None:
    """The RMSNorm of `width` numbers, all at their addresses. A residual of 0 is none."""
    vectors = width // LANES * LANES
    own, factors = carray(at_u16(x), (width,)), carray(at_u16(weight), (width,))
    results, others = carray(at_u16(out), (width,)), carray(at_u16(residual), (width,))
    squares = sum_squares(x, np.float32(0), vectors)
    for i in range(vectors, width):
        squares += to_float32(own[i]) * to_float32(own[i])
    scale = np.float32(1) / np.sqrt(squares / np.float32(width) + epsilon)
    write_normed(x, np.float32(0), scale, weight, plus, residual, out, vectors)
    for i in range(vectors, width):
        value = to_float32(own[i]) * scale * (to_float32(factors[i]) + plus)
        results[i] = to_bfloat16(to_float32(others[i]) + value if residual != 0 else value)


@cache
def norm_kernel() -> Kernel:
    """RMSNorm of each token, and the sum of this and a residual."""

    def body(block: Code) -> None:
        args = _norm_arguments(block)
        n, width, step = args.tokens, args.width, args.tokens_per_task
        epsilon, plus = np.float32(args.epsilon), np.float32(args.plus)
        while True:
            first = next_task(block) * step
            if first >= n:
                break
            for token in range(first, min(n, first + step)):
                at = 2 * token * width
                other = args.residual + at if args.residual != 0 else 0
                _norm(args.x + at, args.weight, epsilon, plus, other, args.out + at, width)

    return Kernel(body, NormArguments)


class SumArguments(NamedTuple):
    x: int  # bfloat16 [n]
    y: int  # the same
    out: int  # the same
    n: int
    per_task: int
    factor: float  # of y


_sum_arguments = reader_of(SumArguments)


@cache
def sum_kernel() -> Kernel:
    """x + factor * y"""

    def body(block: Code) -> None:
        args = _sum_arguments(block)
        n, step, factor = args.n, args.per_task, np.float32(args.factor)
        x, y = carray(at_u16(args.x), (n,)), carray(at_u16(args.y), (n,))
        out = carray(at_u16(args.out), (n,))
        while True:
            first = next_task(block) * step
            if first >= n:
                break
            for i in range(first, min(n, first + step)):
                out[i] = to_bfloat16(to_float32(x[i]) + factor * to_float32(y[i]))

    return Kernel(body, SumArguments)


class GateArguments(NamedTuple):
    gate_up: int  # bfloat16 [tokens, 2 * width], gates first
    out: int  # bfloat16 [tokens, width]
    tokens: int
    width: int
    activation: int  # SWISH or GELU


_gate_arguments = reader_of(GateArguments)


@cache
def gate_kernel() -> Kernel:
    """activation(gate) * up"""

    def body(block: Code) -> None:
        args = _gate_arguments(block)
        width = args.width
        gate_up = carray(at_u16(args.gate_up), (args.tokens, 2 * width))
        out = carray(at_u16(args.out), (args.tokens, width))
        while True:
            token = next_task(block)
            if token >= args.tokens:
                break
            if args.activation == GELU:
                for i in range(width):
                    gate = activated(to_float32(gate_up[token, i]), GELU)
                    out[token, i] = to_bfloat16(gate * to_float32(gate_up[token, width + i]))
            else:
                for i in range(width):
                    gate = activated(to_float32(gate_up[token, i]), SWISH)
                    out[token, i] = to_bfloat16(gate * to_float32(gate_up[token, width + i]))

    return Kernel(body, GateArguments)


class RotaryArguments(NamedTuple):
    x: int  # bfloat16 [tokens, heads, dim], its heads one behind the other
    token_stride: int  # in numbers
    tokens: int
    heads: int
    dim: int
    rotated: int  # how many of a head's numbers are rotated: the first ones
    cos: int  # bfloat16 [tokens, rotated]
    sin: int  # the same, negative in its first half
    first_weight: int  # bfloat16 [dim], of the norm of the first heads; 0 for no norms
    n_first: int
    other_weight: int  # of the norm of the other heads
    epsilon: float
    plus: float  # what is added to the weights


_rotary_arguments = reader_of(RotaryArguments)


@njit(inline="always")
def _rounded_product(a: Code, bits: Code) -> Code:
    """A float32 times a bfloat16, rounded to bfloat16 as torch's own operation is."""
    return to_float32(to_bfloat16(a * to_float32(bits)))


@cache
def rotary_kernel() -> Kernel:
    """Rotary embedding in place, after an RMSNorm of each head if there are weights for it."""

    def body(block: Code) -> None:
        args = _rotary_arguments(block)
        n, heads, dim = args.tokens, args.heads, args.dim
        stride, n_first = args.token_stride, args.n_first
        epsilon, plus = np.float32(args.epsilon), np.float32(args.plus)
        half = args.rotated // 2
        x = carray(at_u16(args.x), (n * stride,))
        cos = carray(at_u16(args.cos), (n, args.rotated))
        sin = carray(at_u16(args.sin), (n, args.rotated))
        is_normed = args.first_weight != 0
        while True:
            token = next_task(block)
            if token >= n:
                break
            for head in range(heads):
                start = token * stride + head * dim
                at = args.x + 2 * start
                if is_normed:
                    weight = args.first_weight if head < n_first else args.other_weight
                    _norm(at, weight, epsilon, plus, 0, at, dim)
                if half % LANES == 0:
                    row = 2 * token * args.rotated
                    turn_halves(at, args.cos + row, args.sin + row, half)
                    continue
                for i in range(half):
                    j = half + i
                    low, high = to_float32(x[start + i]), to_float32(x[start + j])
                    rotated_low = _rounded_product(low, cos[token, i]) + high * to_float32(
                        sin[token, i]
                    )
                    rotated_high = _rounded_product(high, cos[token, j]) + low * to_float32(
                        sin[token, j]
                    )
                    x[start + j] = to_bfloat16(rotated_high)
                    x[start + i] = to_bfloat16(rotated_low)

    return Kernel(body, RotaryArguments)


class StoreArguments(NamedTuple):
    """Strides are in numbers."""

    k: int  # bfloat16 [tokens, heads, dim]
    k_token_stride: int
    k_head_stride: int
    v: int
    v_token_stride: int
    v_head_stride: int
    slots: int  # int64 [tokens]
    k_pages: int  # bfloat16 [slots, heads, dim]; see `kv.storage.Storage.page_stride`
    v_pages: int
    tokens: int
    heads: int
    dim: int


_store_arguments = reader_of(StoreArguments)


@njit(inline="always")
def _copy_heads(source: Code, stride: Code, target: Code, heads: Code, dim: Code) -> None:
    if stride == dim:
        copy_bytes(source, target, 2 * heads * dim)
        return
    for head in range(heads):
        copy_bytes(source + 2 * head * stride, target + 2 * head * dim, 2 * dim)


@cache
def store_kernel() -> Kernel:
    """Copies new keys and values to their slots."""

    def body(block: Code) -> None:
        args = _store_arguments(block)
        heads, dim = args.heads, args.dim
        slots = carray(at_i64(args.slots), (args.tokens,))
        while True:
            token = next_task(block)
            if token >= args.tokens:
                break
            slot = 2 * slots[token] * heads * dim
            k, v = (
                args.k + 2 * token * args.k_token_stride,
                args.v + 2 * token * args.v_token_stride,
            )
            _copy_heads(k, args.k_head_stride, args.k_pages + slot, heads, dim)
            _copy_heads(v, args.v_head_stride, args.v_pages + slot, heads, dim)

    return Kernel(body, StoreArguments)
