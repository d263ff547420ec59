"""Triton kernels of experts whose weights are plain numbers.

The matrix is on the left: its outputs are the rows of matrix instructions, tokens are columns, of
which the smallest instruction has 8. A token's sums are made in one order of the inputs, whatever
is beside it. In float32 no tile's size changes that order either.
"""

import triton
import triton.language as tl

from deployments.engine.kernels.experts import SQUARED_RELU

_SQUARED_RELU = tl.constexpr(SQUARED_RELU)


@triton.jit
def activate(x, other, ACTIVATION: tl.constexpr, IS_GATED: tl.constexpr):
    """The activation of x, times `other` where there is a second first product."""
    if ACTIVATION.kind == _SQUARED_RELU:
        x = tl.maximum(x, 0.0)
        x = x * x
    else:
        if ACTIVATION.has_limit:
            x = tl.minimum(x, ACTIVATION.limit)
        x = x * tl.sigmoid(ACTIVATION.slope * x + ACTIVATION.cube * x * x * x)
    if IS_GATED:
        if ACTIVATION.has_limit:
            other = tl.minimum(tl.maximum(other, -ACTIVATION.limit), ACTIVATION.limit)
        x = x * (other + ACTIVATION.shift)
    return x


@triton.jit
def _rows(weight, row, i, SHAPE: tl.constexpr, IS_WHOLE: tl.constexpr):
    """Some inputs of some rows of a matrix: [rows, inputs]."""
    at = weight + row[:, None] * SHAPE.inputs + i[None, :]
    return tl.load(at) if IS_WHOLE else tl.load(at, mask=(i < SHAPE.inputs)[None, :], other=0.0)


@triton.jit(do_not_specialize=["n_experts", "of_a_row"])
def expert_product_kernel(
    x, weight, bias, out, places, begins, experts, n_experts, of_a_row, SHAPE: tl.constexpr,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, IS_GROUPED: tl.constexpr,
    OUTPUTS: tl.constexpr, TOKENS: tl.constexpr, INPUTS: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One program for OUTPUTS outputs of a block of tokens that have one expert.

    IS_GROUPED: a block's places are `places` from its begin to its end. Else a block is a place.
    of_a_row: places that have one row of x. A place's result is the row of `out` with its number.
    """
    block, part = tl.program_id(0), tl.program_id(1)
    expert = tl.load(experts + part)
    if (expert < 0) | (expert >= n_experts):
        return
    column = tl.arange(0, TOKENS)
    if IS_GROUPED:
        column += tl.load(begins + 2 * part).to(tl.int32)
        is_token = column < tl.load(begins + 2 * part + 1)
        place = tl.load(places + column, mask=is_token, other=0)
    else:
        is_token = column == 0
        place = tl.full((TOKENS,), part, tl.int64)
    output = block * OUTPUTS + tl.arange(0, OUTPUTS)
    # What is behind the last output is computed again in its place, and not stored.
    own = tl.minimum(output, SHAPE.outputs - 1)
    first_row = expert.to(tl.int64) * (SHAPE.parts * SHAPE.outputs)
    weight += first_row * SHAPE.inputs
    row = own * SHAPE.step
    source = x + (place // of_a_row)[None, :] * SHAPE.inputs
    total = tl.zeros((OUTPUTS, TOKENS), dtype=tl.float32)
    other = total
    is_whole: tl.constexpr = SHAPE.inputs % INPUTS == 0
    for first in range(0, SHAPE.inputs, INPUTS):
        i = first + tl.arange(0, INPUTS)
        mask = is_token[None, :]
        if not is_whole:
            mask = mask & (i < SHAPE.inputs)[:, None]
        inputs = tl.load(source + i[:, None], mask=mask, other=0.0).to(DOT)
        numbers = _rows(weight, row, i, SHAPE, is_whole).to(DOT)
        total = tl.dot(numbers, inputs, total, input_precision="ieee")
        if SHAPE.parts == 2:
            numbers = _rows(weight, row + SHAPE.apart, i, SHAPE, is_whole).to(DOT)
            other = tl.dot(numbers, inputs, other, input_precision="ieee")
    if HAS_BIAS:
        bias += first_row
        total += tl.load(bias + row).to(tl.float32)[:, None]
        if SHAPE.parts == 2:
            other += tl.load(bias + row + SHAPE.apart).to(tl.float32)[:, None]
    if ACTIVATION is not None:
        total = activate(total, other, ACTIVATION, SHAPE.parts == 2)
    target = out + place[None, :] * SHAPE.outputs + output[:, None]
    mask = (output < SHAPE.outputs)[:, None] & is_token[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n_experts"])
def activation_kernel(
    x, bias, index, out, n_experts, SHAPE: tl.constexpr, ACTIVATION: tl.constexpr,
    HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The activation of what first products have made of a place: one program for BLOCK of it."""
    place, output = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    expert, mask = tl.load(index + place), output < SHAPE.outputs
    if (expert < 0) | (expert >= n_experts):
        return
    row, width = output * SHAPE.step, SHAPE.parts * SHAPE.outputs
    total = tl.load(x + place * width + row, mask=mask, other=0.0).to(tl.float32)
    other = total
    if SHAPE.parts == 2:
        at = x + place * width + row + SHAPE.apart
        other = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    if HAS_BIAS:
        bias += expert * width
        total += tl.load(bias + row, mask=mask, other=0.0).to(tl.float32)
        if SHAPE.parts == 2:
            other += tl.load(bias + row + SHAPE.apart, mask=mask, other=0.0).to(tl.float32)
    total = activate(total, other, ACTIVATION, SHAPE.parts == 2)
    tl.store(out + place * SHAPE.outputs + output, total.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n_experts"])
def weighted_sum_kernel(
    answers, bias, index, weights, residual, out, n_experts, CHOICES: tl.constexpr,
    WIDTH: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of what a token's experts answer, in the order of its choices, and a residual."""
    token, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for choice in tl.static_range(CHOICES):
        place = token * CHOICES + choice
        expert = tl.load(index + place)
        mask = column < tl.where((expert >= 0) & (expert < n_experts), WIDTH, 0)
        answer = tl.load(answers + place * WIDTH + column, mask=mask, other=0.0).to(tl.float32)
        if HAS_BIAS:
            answer += tl.load(bias + expert * WIDTH + column, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(weights + place).to(tl.float32) * answer
    if HAS_RESIDUAL:
        added = tl.load(residual + token * WIDTH + column, mask=column < WIDTH, other=0.0)
        total += added.to(tl.float32)
    tl.store(out + token * WIDTH + column, total.to(out.dtype.element_ty), mask=column < WIDTH)
