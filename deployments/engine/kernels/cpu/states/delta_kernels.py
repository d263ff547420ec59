"""The gated delta rule for few tokens of many rows, with all that is between the products of its
layer, for bfloat16 on a CPU, compiled by numba.

A task is a head of values of a row, and goes through the row's tokens. So a row's tokens get the
same bits at once or one after the other, and whatever is beside it.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.layer_ir import copy_bytes
from deployments.engine.kernels.cpu.matmul_kernels import SWISH, activated, sigmoid
from deployments.engine.kernels.cpu.simd import (
    Code,
    at_f32,
    at_i64,
    at_u16,
    exp,
    next_task,
    to_bfloat16,
    to_float32,
)

LEAST_SQUARES = np.float32(1e-6)  # that is added to the squares of keys and queries
MAX_PLAIN = np.float32(20)  # above it softplus is the number itself


class DeltaArguments(NamedTuple):
    """Strides are in numbers. Those of heads are of heads of keys, each of which has a group of
    heads of values."""

    q: int  # bfloat16, what the products make of each token
    k: int
    v: int
    z: int  # gates of results
    b: int  # of how much is learnt
    a: int  # of how much is forgotten
    token_stride: int  # of q, k and v
    z_token_stride: int
    ba_token_stride: int
    qk_head_stride: int
    v_head_stride: int
    z_head_stride: int
    ba_head_stride: int
    conv_weight: int  # bfloat16 [channels, taps]; channels are those of all q, k and v
    decay: int  # float32 [v_heads], below 0
    dt_bias: int  # float32 [v_heads]
    norm_weight: int  # bfloat16 [v_dim]
    conv_states: int  # bfloat16 [slots, channels, taps], the last inputs
    states: int  # float32 [slots, v_heads, k_dim, v_dim]
    slots: int  # int64 [2, tokens], to read, of a row's first token, and to write; -1: none
    tokens: int
    rows: int  # int64: how many rows, the first token of each, and the end
    out: int  # bfloat16 [tokens, v_heads * v_dim]
    k_heads: int
    group: int
    k_dim: int
    v_dim: int
    taps: int
    epsilon: float


_delta_arguments = reader_of(DeltaArguments)


@njit(inline="always")
def _convolve(
    x: Code, stride: Code, nth: Code, before: Code, weights: Code, behind: Code, out: Code
) -> None:
    """The convolution of some channels for one token of a row, and what it leaves behind.

    x: the address of the row's first token, whose others follow at a stride. before, behind: of the
    channels' last inputs [channels, taps]; 0: there are none, or nobody needs them.
    """
    count, taps = len(out), weights.shape[1]
    old, new = carray(at_u16(before), (count, taps)), carray(at_u16(behind), (count, taps))
    out[:] = 0
    for tap in range(taps):
        at = nth - (taps - 1 - tap)
        if at >= 0:
            inputs = carray(at_u16(x + 2 * at * stride), (count,))
            for i in range(count):
                out[i] += to_float32(inputs[i]) * to_float32(weights[i, tap])
                if behind != 0:
                    new[i, tap] = inputs[i]
        elif before != 0:
            for i in range(count):
                out[i] += to_float32(old[i, taps + at]) * to_float32(weights[i, tap])
                if behind != 0:
                    new[i, tap] = old[i, taps + at]
        elif behind != 0:
            new[:, tap] = 0
    for i in range(count):
        out[i] = to_float32(to_bfloat16(activated(out[i], SWISH)))


@njit(inline="always")
def _scale_to_unit(x: Code, factor: Code) -> None:
    total = LEAST_SQUARES
    for i in range(len(x)):
        total += x[i] * x[i]
    factor /= np.sqrt(total)
    for i in range(len(x)):
        x[i] *= factor


@njit(inline="always")
def _learn(
    state: Code, q: Code, k: Code, v: Code, keeps: Code, learns: Code, found: Code, out: Code
) -> None:
    """Has a state [k_dim, v_dim] forget, and learn the difference between a value and what it finds
    by the key. Then `out` is what it finds by the query."""
    k_dim, v_dim = state.shape
    found[:] = 0
    for i in range(k_dim):
        key = k[i]
        for j in range(v_dim):
            state[i, j] *= keeps
            found[j] += state[i, j] * key
    for j in range(v_dim):
        found[j] = (v[j] - found[j]) * learns
    out[:] = 0
    for i in range(k_dim):
        key, query = k[i], q[i]
        for j in range(v_dim):
            state[i, j] += key * found[j]
            out[j] += state[i, j] * query


@njit(inline="always")
def _write_gated(x: Code, epsilon: Code, weight: Code, gate: Code, out: Code) -> None:
    """Writes the norm of a head's result, times the activation of its gates. The last three are
    addresses of bfloat16. It is rounded where torch's own operations are."""
    n, squares = len(x), np.float32(0)
    weights, gates = carray(at_u16(weight), (n,)), carray(at_u16(gate), (n,))
    outs = carray(at_u16(out), (n,))
    for i in range(n):
        x[i] = to_float32(to_bfloat16(x[i]))
        squares += x[i] * x[i]
    scale = np.float32(1) / np.sqrt(squares / np.float32(n) + epsilon)
    for i in range(n):
        normed = to_float32(to_bfloat16(x[i] * scale)) * to_float32(weights[i])
        normed = to_float32(to_bfloat16(normed))
        outs[i] = to_bfloat16(normed * activated(to_float32(gates[i]), SWISH))


@njit(inline="always")
def _softplus(x: Code) -> Code:
    return x if x > MAX_PLAIN else np.log1p(np.exp(x))


@cache
def delta_kernel() -> Kernel:
    """The convolution, the rule and the gated norm."""

    def body(block: Code) -> None:
        args = _delta_arguments(block)
        k_dim, v_dim, group, taps = args.k_dim, args.v_dim, args.group, args.taps
        v_heads, k_width = args.k_heads * group, args.k_heads * k_dim
        channels = 2 * k_width + v_heads * v_dim
        n_rows = carray(at_i64(args.rows), (1,))[0]
        starts = carray(at_i64(args.rows + 8), (n_rows + 1,))
        slots = carray(at_i64(args.slots), (2, args.tokens))
        weights = carray(at_u16(args.conv_weight), (channels, taps))
        decay = carray(at_f32(args.decay), (v_heads,))
        dt_bias = carray(at_f32(args.dt_bias), (v_heads,))
        epsilon = np.float32(args.epsilon)
        scale = np.float32(1) / np.sqrt(np.float32(k_dim))
        state = np.empty((k_dim, v_dim), np.float32)
        q, k = np.empty(k_dim, np.float32), np.empty(k_dim, np.float32)
        v, found, out = (
            np.empty(v_dim, np.float32),
            np.empty(v_dim, np.float32),
            np.empty(v_dim, np.float32),
        )
        head_bytes, conv_bytes = 4 * k_dim * v_dim, 2 * channels * taps
        while True:
            task = next_task(block)
            if task >= n_rows * v_heads:
                break
            row, head = task // v_heads, task % v_heads
            k_head, nth_of_group = head // group, head % group
            first, read = starts[row], slots[0, starts[row]]
            if read >= 0:
                own = args.states + (read * v_heads + head) * head_bytes
                copy_bytes(own, state.ctypes.data, head_bytes)
            else:
                state[:] = 0
            q_at, k_at, v_at = k_head * k_dim, k_width + k_head * k_dim, 2 * k_width + head * v_dim
            at = 2 * (first * args.token_stride + k_head * args.qk_head_stride)
            v_from = first * args.token_stride + k_head * args.v_head_stride + nth_of_group * v_dim
            for token in range(first, starts[row + 1]):
                nth, written = token - first, slots[1, token]
                before = args.conv_states + read * conv_bytes if read >= 0 else 0
                behind = args.conv_states + written * conv_bytes if written >= 0 else 0
                old = before + 2 * q_at * taps if before != 0 else 0
                new = behind + 2 * q_at * taps if behind != 0 and nth_of_group == 0 else 0
                _convolve(
                    args.q + at, args.token_stride, nth, old, weights[q_at : q_at + k_dim], new, q
                )
                old = before + 2 * k_at * taps if before != 0 else 0
                new = behind + 2 * k_at * taps if behind != 0 and nth_of_group == 0 else 0
                _convolve(
                    args.k + at, args.token_stride, nth, old, weights[k_at : k_at + k_dim], new, k
                )
                old = before + 2 * v_at * taps if before != 0 else 0
                new = behind + 2 * v_at * taps if behind != 0 else 0
                x = args.v + 2 * v_from
                _convolve(x, args.token_stride, nth, old, weights[v_at : v_at + v_dim], new, v)
                _scale_to_unit(q, scale)
                _scale_to_unit(k, np.float32(1))
                gates = token * args.ba_token_stride + k_head * args.ba_head_stride + nth_of_group
                b = to_float32(carray(at_u16(args.b + 2 * gates), (1,))[0])
                a = to_float32(carray(at_u16(args.a + 2 * gates), (1,))[0])
                learns = to_float32(to_bfloat16(sigmoid(b)))
                keeps = exp(decay[head] * _softplus(a + dt_bias[head]))
                _learn(state, q, k, v, keeps, learns, found, out)
                if written >= 0:
                    own = args.states + (written * v_heads + head) * head_bytes
                    copy_bytes(state.ctypes.data, own, head_bytes)
                z = token * args.z_token_stride + k_head * args.z_head_stride + nth_of_group * v_dim
                to = args.out + 2 * (token * v_heads + head) * v_dim
                _write_gated(out, epsilon, args.norm_weight, args.z + 2 * z, to)

    return Kernel(body, DeltaArguments)
