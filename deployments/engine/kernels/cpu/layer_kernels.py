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
    sum_vectors,
    turn_halves,
    turn_pairs,
    write_normed,
)
from deployments.engine.kernels.cpu.matmul_kernels import GELU, SWISH, activated, sigmoid
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
    x: int  # bfloat16 [tokens, width], of a token at each `x_stride`
    weight: int  # bfloat16 [width]
    residual: int  # bfloat16 [tokens, width], which is added; or 0
    out: int  # bfloat16 [tokens, width], of a token at each `out_stride`
    x_stride: int  # in numbers
    out_stride: int
    tokens: int
    width: int
    tokens_per_task: int
    is_centered: int  # whether the mean of a token is taken off first
    epsilon: float
    plus: float  # what is added to the weight


_norm_arguments = reader_of(NormArguments)


@njit(inline="always")
def _norm(x: Code, epsilon: Code, width: Code, is_centered: Code) -> tuple[Code, Code]:
    """The mean that is taken off `width` numbers, or 0, and what they are multiplied with."""
    vectors = width // LANES * LANES
    own, mean = carray(at_u16(x), (width,)), np.float32(0)
    if is_centered:
        mean = sum_vectors(x, vectors)
        for i in range(vectors, width):
            mean += to_float32(own[i])
        mean /= np.float32(width)
    squares = sum_squares(x, mean, vectors)
    for i in range(vectors, width):
        value = to_float32(own[i]) - mean
        squares += value * value
    return mean, np.float32(1) / np.sqrt(squares / np.float32(width) + epsilon)


@njit(inline="always")
def write_norm(
    x: Code,
    weight: Code,
    epsilon: Code,
    plus: Code,
    residual: Code,
    out: Code,
    width: Code,
    is_centered: Code,
) -> None:
    """The norm of `width` numbers, all at their addresses. A residual of 0 is none."""
    mean, scale = _norm(x, epsilon, width, is_centered)
    vectors = width // LANES * LANES
    write_normed(x, mean, scale, weight, plus, residual, out, vectors)
    own, factors = carray(at_u16(x), (width,)), carray(at_u16(weight), (width,))
    results, others = carray(at_u16(out), (width,)), carray(at_u16(residual), (width,))
    for i in range(vectors, width):
        value = (to_float32(own[i]) - mean) * scale * (to_float32(factors[i]) + plus)
        results[i] = to_bfloat16(to_float32(others[i]) + value if residual != 0 else value)


@cache
def norm_kernel() -> Kernel:
    """RMSNorm or LayerNorm of each token, and the sum of this and a residual."""

    def body(block: Code) -> None:
        args = _norm_arguments(block)
        n, width, step = args.tokens, args.width, args.tokens_per_task
        epsilon, plus = np.float32(args.epsilon), np.float32(args.plus)
        while True:
            first = next_task(block) * step
            if first >= n:
                break
            for token in range(first, min(n, first + step)):
                x = args.x + 2 * token * args.x_stride
                out = args.out + 2 * token * args.out_stride
                other = args.residual + 2 * token * width if args.residual != 0 else 0
                write_norm(x, args.weight, epsilon, plus, other, out, width, args.is_centered)

    return Kernel(body, NormArguments)


class SumArguments(NamedTuple):
    x: int  # bfloat16 [n]
    y: int  # the same
    gates: int  # bfloat16 [n / per_task], whose sigmoids are further factors of y; or 0
    out: int  # the same as x
    n: int
    per_task: int
    factor: float  # of y


_sum_arguments = reader_of(SumArguments)


@cache
def sum_kernel() -> Kernel:
    """x + factor * y, or x + factor * sigmoid(gate) * y"""

    def body(block: Code) -> None:
        args = _sum_arguments(block)
        n, step, factor = args.n, args.per_task, np.float32(args.factor)
        x, y = carray(at_u16(args.x), (n,)), carray(at_u16(args.y), (n,))
        out = carray(at_u16(args.out), (n,))
        while True:
            first = next_task(block) * step
            if first >= n:
                break
            scale = factor
            if args.gates != 0:
                scale *= sigmoid(to_float32(carray(at_u16(args.gates), (n,))[first // step]))
            for i in range(first, min(n, first + step)):
                out[i] = to_bfloat16(to_float32(x[i]) + scale * to_float32(y[i]))

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


class HeadsArguments(NamedTuple):
    """Strides are in numbers."""

    x: int  # bfloat16 [tokens, heads, dim]
    x_token_stride: int
    x_head_stride: int
    gates: int  # the same, whose sigmoids are factors; or 0
    gates_token_stride: int
    gates_head_stride: int
    out: int  # the same
    out_token_stride: int
    out_head_stride: int
    tokens: int
    heads: int
    dim: int


_heads_arguments = reader_of(HeadsArguments)


@cache
def heads_kernel() -> Kernel:
    """Copies heads, or multiplies them with their gates."""

    def body(block: Code) -> None:
        args = _heads_arguments(block)
        dim = args.dim
        while True:
            token = next_task(block)
            if token >= args.tokens:
                break
            for head in range(args.heads):
                at = args.x + 2 * (token * args.x_token_stride + head * args.x_head_stride)
                to = args.out + 2 * (token * args.out_token_stride + head * args.out_head_stride)
                if args.gates == 0:
                    copy_bytes(at, to, 2 * dim)
                    continue
                gate = token * args.gates_token_stride + head * args.gates_head_stride
                x, out = carray(at_u16(at), (dim,)), carray(at_u16(to), (dim,))
                gates = carray(at_u16(args.gates + 2 * gate), (dim,))
                for i in range(dim):
                    factor = to_float32(to_bfloat16(sigmoid(to_float32(gates[i]))))
                    out[i] = to_bfloat16(to_float32(x[i]) * factor)

    return Kernel(body, HeadsArguments)


class RotaryArguments(NamedTuple):
    x: int  # bfloat16 [tokens, heads, dim], its heads one behind the other
    token_stride: int  # in numbers
    tokens: int
    heads: int
    dim: int
    rotated: int  # how many of a head's numbers are rotated: the first ones
    is_interleaved: int  # whether neighbours are rotated together, not numbers of both halves
    cos: int  # bfloat16 [tokens, rotated]
    sin: int  # the same, negative for the first number of each pair
    first_weight: int  # bfloat16 [dim], of the norm of the first heads; 0 for no norms
    first_scale: int  # bfloat16 [tokens], a factor of the first heads; or 0
    n_first: int
    other_weight: int  # of the norm of the other heads
    is_normed_last: int  # whether the norms are behind the rotary embedding
    epsilon: float
    plus: float  # what is added to the weights


_rotary_arguments = reader_of(RotaryArguments)


@njit(inline="always")
def _rounded_product(a: Code, bits: Code) -> Code:
    """A float32 times a bfloat16, rounded to bfloat16 as torch's own operation is."""
    return to_float32(to_bfloat16(a * to_float32(bits)))


@njit(inline="always")
def _turn(x: Code, i: Code, j: Code, cos: Code, sin: Code) -> None:
    """Rotates two numbers of a head."""
    low, high = to_float32(x[i]), to_float32(x[j])
    rotated_low = _rounded_product(low, cos[i]) + high * to_float32(sin[i])
    rotated_high = _rounded_product(high, cos[j]) + low * to_float32(sin[j])
    x[j] = to_bfloat16(rotated_high)
    x[i] = to_bfloat16(rotated_low)


@cache
def rotary_kernel() -> Kernel:
    """Rotary embedding in place, an RMSNorm of each head if there are weights for it, and a factor
    of the first ones if there is one."""

    def body(block: Code) -> None:
        args = _rotary_arguments(block)
        n, heads, dim = args.tokens, args.heads, args.dim
        stride, n_first = args.token_stride, args.n_first
        epsilon, plus = np.float32(args.epsilon), np.float32(args.plus)
        half = args.rotated // 2
        vectors = half // LANES * LANES
        cos = carray(at_u16(args.cos), (n, args.rotated))
        sin = carray(at_u16(args.sin), (n, args.rotated))
        is_normed = args.first_weight != 0
        while True:
            token = next_task(block)
            if token >= n:
                break
            row = 2 * token * args.rotated
            for head in range(heads):
                at = args.x + 2 * (token * stride + head * dim)
                own = carray(at_u16(at), (dim,))
                weight = args.first_weight if head < n_first else args.other_weight
                if is_normed and not args.is_normed_last:
                    write_norm(at, weight, epsilon, plus, 0, at, dim, 0)
                if args.is_interleaved:
                    turn_pairs(at, args.cos + row, args.sin + row, half)
                    for i in range(vectors, half):
                        _turn(own, 2 * i, 2 * i + 1, cos[token], sin[token])
                else:
                    turn_halves(at, args.cos + row, args.sin + row, half)
                    for i in range(vectors, half):
                        _turn(own, i, half + i, cos[token], sin[token])
                if is_normed and args.is_normed_last:
                    write_norm(at, weight, epsilon, plus, 0, at, dim, 0)
                if args.first_scale != 0 and head < n_first:
                    scale = to_float32(carray(at_u16(args.first_scale), (n,))[token])
                    for i in range(dim):
                        own[i] = to_bfloat16(to_float32(own[i]) * scale)

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
