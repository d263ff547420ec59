"""Triton kernels of quantized weights, which become numbers in registers.

A product sums the codes of a group times its inputs, and then scales the sum: codes are exact in
the type of the inputs, so that nothing is rounded but sums of float32.

The matrix is on the left: its outputs are the rows of matrix instructions, tokens are columns, of
which the smallest instruction has 8. One token costs no more than as a vector: without matrix
instructions each weight takes two more operations, and an H200 has time for 4 a weight of 4 bits
before the next one is read. All sizes are made of the same instructions in the same order, so that
the tokens beside a token change no bit of its results.
"""

import triton
import triton.language as tl

from deployments.engine.kernels.gpu.layer_kernels import activated
from deployments.engine.kernels.gpu.quantized_numbers import (
    NATURAL_WORDS,
    PAIRS,
    SLAB,
    base_of,
    inputs_of,
    row_factor,
    run_of_numbers,
)


@triton.jit
def _joined(first, second):
    """The numbers of one tensor behind those of another one."""
    return tl.join(first, second).trans(1, 0).reshape(2 * first.shape[0])


@triton.jit
def _factor(words, slab, rows, n_rows, RUN: tl.constexpr, FACTOR: tl.constexpr):
    """float32 [outputs]: the factors of a slab's run, of two halves of the outputs.

    A half has fewer outputs than a program has threads. So each thread loads what it needs itself,
    and none has to wait for another one.
    """
    first = row_factor(words, slab, rows[0], n_rows, RUN, FACTOR)
    second = row_factor(words, slab, rows[1], n_rows, RUN, FACTOR)
    return _joined(first, second)


@triton.jit
def _finest(
    coarse, fine, slab, rows, n_rows, RUN: tl.constexpr, COARSE: tl.constexpr,
    FINE: tl.constexpr,
):  # fmt: skip
    """float32 [outputs]: the fine factors, or the coarse ones where there are no others."""
    if FINE is None:
        factors = _factor(coarse, slab, rows, n_rows, RUN, COARSE)
    else:
        factors = _factor(fine, slab, rows, n_rows, RUN, FINE)
    return factors


@triton.jit
def _add_dot(numbers, x, total, KIND: tl.constexpr, DOT: tl.constexpr):
    """Adds the product. An input of float32 is the sum of three numbers of bfloat16."""
    if x.dtype == tl.float32:
        for _ in tl.static_range(3):
            part = x.to(KIND)
            x -= part.to(tl.float32)
            total = tl.dot(numbers, part.to(DOT), total)
    else:
        total = tl.dot(numbers, x.to(DOT), total)
    return total


@triton.jit
def load_codes(low, high, slab, row, n_rows, n_columns, CODING: tl.constexpr):
    """The words of a slab of rows: of its first four runs, of the others, and of the high bits."""
    pair = tl.arange(0, PAIRS)
    skipped = tl.full((), n_rows, tl.int64) * slab
    if CODING.is_natural:
        word = tl.arange(0, NATURAL_WORDS)
        at = row.to(tl.int64)[:, None] * (n_columns // 8) + slab * NATURAL_WORDS + word[None, :]
    else:
        at = skipped * CODING.low_words + row[:, None] * CODING.low_words + pair[None, :]
    words = tl.load(low + at)
    later_words = words
    if CODING.low == 8 and not CODING.is_natural:
        later_words = tl.load(low + at + PAIRS)
    high_words = words
    if CODING.high > 0:
        at = skipped * PAIRS + row[:, None] * PAIRS + pair[None, :]
        high_words = tl.load(high + at)
    return words, later_words, high_words


@triton.jit
def _add_slab(
    total, x, token, is_token, low, high, table, coarse, fine, least, fine_least, order, slab, row,
    rows, n_rows, n_inputs, n_columns, CODING: tl.constexpr, SCALING: tl.constexpr,
    HAS_ORDER: tl.constexpr, IS_WHOLE: tl.constexpr, KIND: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Adds the product of a slab's inputs to [outputs, tokens]."""
    words, later_words, high_words = load_codes(low, high, slab, row, n_rows, n_columns, CODING)
    sums = tl.zeros_like(total)
    of_ones = sums
    slab_sums = sums
    runs: tl.constexpr = CODING.runs
    # Where each weight has a least, what integers have too much is taken from it.
    is_folded: tl.constexpr = (
        SCALING.least is not None and CODING.kind == "integers" and x.dtype.element_ty != tl.float32
    )
    base: tl.constexpr = base_of(CODING, KIND) if is_folded else 0.0
    # Two runs at once: half as many loads of inputs. Groups of 16 inputs are scaled run by run.
    wide: tl.constexpr = 2 if runs == 8 and SCALING.group != 16 else 1
    for run in tl.static_range(0, runs, wide):
        i = inputs_of(slab, run, wide, CODING)
        mask = is_token[None, :]
        if HAS_ORDER:
            i = tl.load(order + i, mask=i < n_columns, other=n_inputs)
        if HAS_ORDER or not IS_WHOLE:
            mask = mask & (i < n_inputs)[:, None]
        inputs = tl.load(x + token[None, :] * n_inputs + i[:, None], mask=mask, other=0.0)
        if run > 3:
            words = later_words
        numbers = run_of_numbers(words, high_words, table, run, CODING, is_folded, KIND, DOT)
        if wide == 2:
            more = run_of_numbers(words, high_words, table, run + 1, CODING, is_folded, KIND, DOT)
            both = tl.join(numbers, more).trans(0, 2, 1)
            numbers = both.reshape(numbers.shape[0], 2 * numbers.shape[1])
        if SCALING.group == 0:
            total = _add_dot(numbers, inputs, total, KIND, DOT)
        else:
            sums = _add_dot(numbers, inputs, sums, KIND, DOT)
            if SCALING.least is not None:
                of_ones = _add_dot(tl.full(numbers.shape, 1.0, DOT), inputs, of_ones, KIND, DOT)
            if (run + wide) * (SLAB // runs) % SCALING.group == 0:
                scale = _finest(coarse, fine, slab, rows, n_rows, run, SCALING.coarse, SCALING.fine)
                if SCALING.least is not None:
                    if SCALING.fine is not None:
                        scale *= _factor(coarse, slab, rows, n_rows, run, SCALING.coarse)
                    lowest = _finest(
                        least, fine_least, slab, rows, n_rows, run, SCALING.least,
                        SCALING.fine_least,
                    )  # fmt: skip
                    if SCALING.fine_least is not None:
                        lowest *= _factor(least, slab, rows, n_rows, run, SCALING.least)
                    total += of_ones * (lowest - base * scale)[:, None]
                    total += sums * scale[:, None]
                    of_ones = tl.zeros_like(total)
                elif SCALING.fine is None:
                    total += sums * scale[:, None]
                else:
                    slab_sums += sums * scale[:, None]
                sums = tl.zeros_like(total)
    if SCALING.fine is not None and SCALING.least is None:
        total += slab_sums * _factor(coarse, slab, rows, n_rows, 0, SCALING.coarse)[:, None]
    return total


@triton.jit
def _finish(
    total, column, target, is_token, bias, residual, out, width, out_stride,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
):  # fmt: skip
    """Stores [outputs, tokens], with what is added to them."""
    at = target[None, :] * out_stride + column[:, None]
    there = column < width
    mask = there[:, None] & is_token[None, :]
    if HAS_BIAS:
        total += tl.load(bias + column, mask=there, other=0.0).to(tl.float32)[:, None]
    if HAS_RESIDUAL:
        total += tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n_tokens", "n_splits", "split_slabs", "of_a_token"])
def product_kernel(
    x, order, low, high, table, coarse, fine, least, fine_least, bias, residual, out, parts,
    arrivals, chosen, begins, experts, n_tokens, n_rows, n_outputs, n_inputs, n_columns, out_stride,
    n_splits, split_slabs, of_a_token, CODING: tl.constexpr, SCALING: tl.constexpr,
    OUTPUTS: tl.constexpr, TOKENS: tl.constexpr, GATED: tl.constexpr, GROUPED: tl.constexpr,
    MERGED: tl.constexpr, HAS_ORDER: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, IS_WHOLE: tl.constexpr, KIND: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One program for OUTPUTS outputs, a split of the inputs and TOKENS tokens.

    MERGED: the last one of the splits adds up what all have left in `parts`, in their order,
    whichever was last. GATED: the number of an activation; half of the outputs are gates of the
    others, and the kernel stores the activation of the gates times these. GROUPED: each block of
    tokens has a matrix of its own, with its order of inputs, of `experts`, or none if that is
    below 0; its tokens are those `chosen` from its begin to its end, of which each token of x has
    `of_a_token`.
    """
    block, split, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    half, token = tl.arange(0, OUTPUTS // 2), tl.arange(0, TOKENS)
    source, target, first_row = token, token, 0
    is_token = token < n_tokens
    if GROUPED:
        expert = tl.load(experts + part).to(tl.int32)
        if expert < 0:
            return
        token += tl.load(begins + 2 * part).to(tl.int32)
        is_token = token < tl.load(begins + 2 * part + 1)
        target = tl.load(chosen + token, mask=is_token, other=0)
        source = target // of_a_token
        first_row = expert * n_outputs
        if HAS_ORDER:
            order += expert * n_columns
    if GATED:
        width = n_outputs // 2
        columns = (block * (OUTPUTS // 2) + half, block * (OUTPUTS // 2) + half)
        apart = width
    else:
        width = n_outputs
        columns = (block * OUTPUTS + half, block * OUTPUTS + OUTPUTS // 2 + half)
        apart = 0
    # What is behind the last output is computed again in its place, and not stored.
    rows = (
        first_row + tl.minimum(columns[0], width - 1),
        first_row + tl.minimum(columns[1], width - 1) + apart,
    )
    index = tl.arange(0, OUTPUTS)
    if GATED:
        row = tl.minimum(block * (OUTPUTS // 2) + index % (OUTPUTS // 2), width - 1)
        row += index // (OUTPUTS // 2) * width + first_row
    else:
        row = first_row + tl.minimum(block * OUTPUTS + index, width - 1)
    total = tl.zeros((OUTPUTS, TOKENS), dtype=tl.float32)
    first = split * split_slabs
    end = tl.minimum(first + split_slabs, tl.cdiv(n_columns, SLAB))
    for slab in range(first, end):
        total = _add_slab(
            total, x, source, is_token, low, high, table, coarse, fine, least, fine_least, order,
            slab, row, rows, n_rows, n_inputs, n_columns, CODING, SCALING, HAS_ORDER, IS_WHOLE,
            KIND, DOT,
        )  # fmt: skip
    if SCALING.group == 0:
        scale = _factor(coarse, 0, rows, n_rows, 0, SCALING.coarse)
        total *= scale[:, None]
    if HAS_BIAS:
        bias += first_row
    if MERGED:
        tile = part * tl.num_programs(0) + block
        own = parts + tile.to(tl.int64) * n_splits * (OUTPUTS * TOKENS)
        column_of = tl.arange(0, TOKENS)[None, :]
        tl.store(
            own + (split * OUTPUTS + tl.arange(0, OUTPUTS)[:, None]) * TOKENS + column_of, total
        )
        tl.debug_barrier()  # all threads have stored before one tells so
        if tl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu") == n_splits - 1:
            tl.debug_barrier()
            tl.store(arrivals + tile, 0)  # for the next launch
            upper = tl.zeros((OUTPUTS // 2, TOKENS), dtype=tl.float32)
            lower = upper
            for number in range(n_splits):
                at = own + (number * OUTPUTS + half[:, None]) * TOKENS + column_of
                upper += tl.load(at, cache_modifier=".cg")
                lower += tl.load(at + OUTPUTS // 2 * TOKENS, cache_modifier=".cg")
            if GATED:
                upper = activated(upper, GATED) * lower
            _finish(
                upper, columns[0], target, is_token, bias, residual, out, width,
                out_stride, HAS_BIAS, HAS_RESIDUAL,
            )  # fmt: skip
            if not GATED:
                _finish(
                    lower, columns[1], target, is_token, bias, residual, out, width,
                    out_stride, HAS_BIAS, HAS_RESIDUAL,
                )  # fmt: skip
    else:
        _finish(
            total, _joined(columns[0], columns[1]), target, is_token, bias, residual, out, width,
            out_stride, HAS_BIAS, HAS_RESIDUAL,
        )  # fmt: skip


@triton.jit
def dequantize_kernel(
    index, low, high, table, coarse, fine, least, fine_least, out, n_found, first, n_rows,
    n_columns, CODING: tl.constexpr, SCALING: tl.constexpr, ROWS: tl.constexpr,
    HAS_INDEX: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """One program for a slab of ROWS rows: those from `first` on, or those of an index."""
    found, slab = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    is_there = found < n_found
    row = first + tl.minimum(found, n_found - 1)
    if HAS_INDEX:
        row = tl.load(index + row).to(tl.int32)
    words, later_words, high_words = load_codes(low, high, slab, row, n_rows, n_columns, CODING)
    runs: tl.constexpr = CODING.runs
    for run in tl.static_range(runs):
        if run > 3:
            words = later_words
        numbers = run_of_numbers(words, high_words, table, run, CODING, False, KIND, tl.float32)
        scale = row_factor(coarse, slab, row, n_rows, run, SCALING.coarse)
        if SCALING.fine is not None:
            scale *= row_factor(fine, slab, row, n_rows, run, SCALING.fine)
        numbers *= scale[:, None]
        if SCALING.least is not None:
            lowest = row_factor(least, slab, row, n_rows, run, SCALING.least)
            if SCALING.fine_least is not None:
                lowest *= row_factor(fine_least, slab, row, n_rows, run, SCALING.fine_least)
            numbers += lowest[:, None]
        i = inputs_of(slab, run, 1, CODING)
        mask = is_there[:, None] & (i < n_columns)[None, :]
        at = found.to(tl.int64)[:, None] * n_columns + i[None, :]
        tl.store(out + at, numbers.to(out.dtype.element_ty), mask=mask)
