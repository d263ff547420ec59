"""What stands between the matrix products of a step, for bfloat16 on a CPU, compiled by numba.

torch runs some fifteen operations a layer for it. At few rows they took as long as the products
(tests/bench/RESULTS.md): each passes through Python and a dispatcher, most on one core.

Every task is computed in one order whatever else is in the batch, so what is beside a token and
which thread takes it change no bit.
"""

from functools import cache

import numpy as np
from numba import carray

from deployments.engine.kernels.cpu.dispatch import WORDS, Kernel
from deployments.engine.kernels.cpu.simd import Code, as_float64, at_i64, at_u16, down, take, up


@cache
def norm_kernel() -> Kernel:
    """Arguments: x, weight, out, tokens, width, width of a task's block of tokens, epsilon."""

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        n, width, step = a[4], a[5], a[6]
        epsilon = np.float32(as_float64(a[7]))
        x, out = carray(at_u16(a[1]), (n, width)), carray(at_u16(a[3]), (n, width))
        weight = carray(at_u16(a[2]), (width,))
        while True:
            first = take(block) * step
            if first >= n:
                break
            for token in range(first, min(n, first + step)):
                squares = np.float32(0)
                for i in range(width):
                    value = up(x[token, i])
                    squares += value * value
                scale = np.float32(1) / np.sqrt(squares / np.float32(width) + epsilon)
                for i in range(width):
                    out[token, i] = down(up(x[token, i]) * scale * up(weight[i]))

    return Kernel(body, "qqqqqqd")


@cache
def turn_kernel() -> Kernel:
    """Rotary embedding in place, behind an RMSNorm of each head if there are weights for it.

    Arguments: x, its stride of tokens, tokens, heads, dim, cos, sin, weight of the first heads or
    0, how many these are, weight of the others, epsilon. `sin` is negative in its first half.
    """

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        stride, n, heads, dim, n_first = a[2], a[3], a[4], a[5], a[9]
        epsilon = np.float32(as_float64(a[11]))
        half = dim // 2
        x = carray(at_u16(a[1]), (n * stride,))
        cos, sin = carray(at_u16(a[6]), (n, dim)), carray(at_u16(a[7]), (n, dim))
        is_normed = a[8] != 0
        weights = carray(at_u16(a[8]), (dim,)), carray(at_u16(a[10]), (dim,))
        while True:
            token = take(block)
            if token >= n:
                break
            for head in range(heads):
                start = token * stride + head * dim
                if is_normed:
                    weight = weights[0] if head < n_first else weights[1]
                    squares = np.float32(0)
                    for i in range(start, start + dim):
                        squares += up(x[i]) * up(x[i])
                    scale = np.float32(1) / np.sqrt(squares / np.float32(dim) + epsilon)
                    for i in range(dim):
                        x[start + i] = down(up(x[start + i]) * scale * up(weight[i]))
                for i in range(half):
                    j = half + i
                    low, high = up(x[start + i]), up(x[start + j])
                    turned = up(down(low * up(cos[token, i]))) + high * up(sin[token, i])
                    x[start + j] = down(
                        up(down(high * up(cos[token, j]))) + low * up(sin[token, j])
                    )
                    x[start + i] = down(turned)

    return Kernel(body, "qqqqqqqqqqd")


@cache
def store_kernel() -> Kernel:
    """Arguments: keys, their strides of tokens and heads, values, theirs, slots, cache of keys and
    of values, tokens, heads, dim."""

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        n, heads, dim = a[10], a[11], a[12]
        slots = carray(at_i64(a[7]), (n,))
        while True:
            token = take(block)
            if token >= n:
                break
            for of in range(2):
                new = a[1 + 3 * of] + 2 * token * a[2 + 3 * of]
                kept = a[8 + of] + 2 * slots[token] * heads * dim
                for head in range(heads):
                    source = carray(at_u16(new + 2 * head * a[3 + 3 * of]), (dim,))
                    target = carray(at_u16(kept + 2 * head * dim), (dim,))
                    for i in range(dim):
                        target[i] = source[i]

    return Kernel(body, "qqqqqqqqqqqq")
