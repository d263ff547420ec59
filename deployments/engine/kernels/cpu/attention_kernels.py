"""Attention of single tokens to the paged cache, for bfloat16 on a CPU, compiled by numba.

What a token gets does not depend on what else a kernel computes, to the last bit: its keys are
summed in the order of their positions, in blocks that begin at the same positions for all.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.attention_ir import LOWEST, mix_tokens, score_tokens
from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.simd import (
    Code,
    as_bits,
    as_float32,
    at_f32,
    at_i32,
    at_i64,
    at_u16,
    exp,
    next_task,
    to_bfloat16,
    to_float32,
)

KEYS_PER_SPLIT = 512  # of a decode's context, from a multiple of it on: one task's


class Keys(NamedTuple):
    """Positions [begin, end) of a row, and the pages they lie in."""

    table: Code  # the row's pages
    begin: Code
    end: Code
    page_size: Code
    token_bytes: Code  # of all KV heads
    page_bytes: Code  # from one page of the layer to the next one


@njit(inline="always")
def pages_of(keys: Code) -> Code:
    return range(keys.begin // keys.page_size, (keys.end - 1) // keys.page_size + 1)


@njit(inline="always")
def page_part(keys: Code, page: Code, pages: Code) -> Code:
    """Finds the part of the keys that lies in one page.

    Returns the address of the first one, its position, how many they are, and how many bytes ahead
    the row's next page lies.
    """
    table, page_size, page_bytes = keys.table, keys.page_size, keys.page_bytes
    start = max(keys.begin, page * page_size)
    address = pages + table[page] * page_bytes + start % page_size * keys.token_bytes
    count = min(keys.end, (page + 1) * page_size) - start
    ahead = table[min(page + 1, (keys.end - 1) // page_size)] - table[page]
    return address, start, count, ahead * page_bytes


# Loops over numbers side by side, from 0: the compiler makes vectors of no others.


@njit(inline="always")
def _max_score(address: Code, count: Code, lower_bound: Code) -> Code:
    """Returns the highest of `count` scores and `lower_bound`."""
    scores = carray(at_i32(address), (count,))
    highest = _ordered(np.int32(as_bits(lower_bound)))
    for t in range(count):
        highest = max(highest, _ordered(scores[t]))
    return as_float32(np.uint32(_ordered(highest)))


@njit(inline="always")
def _ordered(bits: Code) -> Code:
    """A float32's bits as a whole number of the same order; of that number the bits."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(inline="always")
def _exp_and_sum(address: Code, count: Code, highest: Code) -> Code:
    """Makes exp(score - highest) of scores, and gives the sum."""
    scores = carray(at_f32(address), (count,))
    total = np.float32(0)
    for t in range(count):
        scores[t] = exp(scores[t] - highest)
        total += scores[t]
    return total


@njit(inline="always")
def apply_softcap(address: Code, count: Code, softcap: Code) -> None:
    scores = carray(at_f32(address), (count,))
    for t in range(count):
        scores[t] = np.tanh(scores[t] / softcap) * softcap


@njit(inline="always")
def _add_distances(address: Code, count: Code, slope: Code, first: Code) -> None:
    """Adds to each score how far before the query its key is, times the slope. `first` is the first
    key's position less the query's."""
    scores = carray(at_f32(address), (count,))
    for t in range(count):
        scores[t] += slope * np.float32(first + t)


@njit(inline="always")
def _count_splits(length: Code, window: Code) -> Code:
    """Counts the splits that hold tokens that the last one of a row sees."""
    first = max(0, length - window)
    return (length - 1) // KEYS_PER_SPLIT - first // KEYS_PER_SPLIT + 1


@njit(inline="always")
def _count_all_splits(lengths: Code, window: Code) -> Code:
    n_splits = 0
    for length in lengths:
        n_splits += _count_splits(length, window)
    return n_splits


@njit(inline="always")
def _split_range(length: Code, window: Code, nth: Code) -> Code:
    """The keys [begin, end) of one of a row's splits."""
    first = max(0, length - window)
    base = (first // KEYS_PER_SPLIT + nth) * KEYS_PER_SPLIT
    return max(first, base), min(length, base + KEYS_PER_SPLIT)


@njit(inline="always")
def _load_query(address: Code, head_stride: Code, scale: Code, query: Code) -> None:
    """A token's heads, times the scale."""
    heads, dim = query.shape
    for i in range(heads):
        given = carray(at_u16(address + 2 * i * head_stride), (dim,))
        for d in range(dim):
            query[i, d] = to_float32(given[d]) * scale


@njit(inline="always")
def _score_split(
    keys: Code, pages: Code, query: Code, scores: Code, kv_heads: Code, group: Code, dim: Code
) -> None:
    """Scores [kv_heads * group, KEYS_PER_SPLIT] of a split's keys."""
    stride, bytes_ = 4 * KEYS_PER_SPLIT, keys.token_bytes
    for page in pages_of(keys):
        address, start, count, ahead = page_part(keys, page, pages)
        for head in range(kv_heads):
            own = query.ctypes.data + 4 * head * group * dim
            out = scores.ctypes.data + head * group * stride + 4 * (start - keys.begin)
            k = address + 2 * head * dim
            score_tokens(k, bytes_, count, ahead, own, out, stride, group, dim)


@njit(inline="always")
def _mix_split(
    keys: Code, pages: Code, weights: Code, sums: Code, kv_heads: Code, group: Code, dim: Code
) -> None:
    """Adds a split's values, times their weights, to the heads' sums."""
    stride, bytes_ = 4 * KEYS_PER_SPLIT, keys.token_bytes
    for page in pages_of(keys):
        address, start, count, ahead = page_part(keys, page, pages)
        for head in range(kv_heads):
            own = weights.ctypes.data + head * group * stride + 4 * (start - keys.begin)
            into = sums.ctypes.data + 4 * head * group * dim
            v = address + 2 * head * dim
            mix_tokens(v, bytes_, count, ahead, own, stride, into, group, dim)


@njit(inline="always")
def _softmax_split(
    scores: Code,
    count: Code,
    softcap: Code,
    slope: Code,
    first: Code,
    has_sink: Code,
    sink: Code,
) -> Code:
    """Makes weights of one head's scores; gives the highest score and the weights' sum.

    `slope` and `first` are as of `_add_distances`. A sink is a key without a value.
    """
    if softcap > 0:
        apply_softcap(scores, count, softcap)
    if slope != 0:
        _add_distances(scores, count, slope, first)
    highest = _max_score(scores, count, sink if has_sink else np.float32(LOWEST))
    total = _exp_and_sum(scores, count, highest)
    if has_sink:
        total += exp(sink - highest)
    return highest, total


class DecodeArguments(NamedTuple):
    """Addresses of contiguous arrays, if no strides are given; strides are in numbers."""

    q: int  # bfloat16 [tokens, heads, dim]
    q_token_stride: int
    q_head_stride: int
    out: int  # bfloat16 [tokens, heads, dim]
    k_pages: int  # bfloat16 [pages, page_size, kv_heads, dim]; each page is contiguous
    v_pages: int
    rows: int
    tokens: int  # int64 [rows]: each row's token in the batch
    page_table: int  # int64 [rows, pages]
    page_table_stride: int
    lengths: int  # int64 [rows]: keys of each row
    kv_heads: int
    page_size: int
    page_bytes: int  # from one page of the layer to the next one
    window: int  # keys that a token sees
    sinks: int  # bfloat16 [heads], or 0
    slopes: int  # float32 [heads], or 0: of each head, what a token's distance adds to its score
    scale: float
    softcap: float  # or 0
    many_splits: int  # of all rows: if there are as many, a task is of all heads, else of a group
    parts: int  # float32 [rows, max_splits, heads, 2 + dim], or 0: see `merge_kernel`
    max_splits: int  # that there is room for in each row


_decode_arguments = reader_of(DecodeArguments)


@cache
def decode_kernel(dim: int, group: int) -> Kernel:
    """Attention of one new token of each row to the pages of its row.

    A task attends to one split of a row. If the row has no other one, the task writes the result,
    and else a part for `merge_kernel`: of each head the highest score, the sum of the weights, and
    the sum of the weighted values.
    """

    def body(block: Code) -> None:
        args = _decode_arguments(block)
        kv_heads, page_size, window = args.kv_heads, args.page_size, args.window
        scale, softcap = np.float32(args.scale), np.float32(args.softcap)
        heads, token_bytes = kv_heads * group, 2 * kv_heads * dim
        sinks = carray(at_u16(args.sinks), (heads,))
        slopes = carray(at_f32(args.slopes), (heads,))
        tokens = carray(at_i64(args.tokens), (args.rows,))
        lengths = carray(at_i64(args.lengths), (args.rows,))
        n_splits = _count_all_splits(lengths, window)
        task_kv_heads = kv_heads if n_splits >= args.many_splits else 1
        task_heads, tasks_per_split = task_kv_heads * group, kv_heads // task_kv_heads
        scores = np.empty((task_heads, KEYS_PER_SPLIT), np.float32)
        query, sums = np.empty((2, task_heads, dim), np.float32)
        totals = np.empty(task_heads, np.float32)
        row = before = 0  # splits of the rows before
        while True:
            task = next_task(block)
            if task >= n_splits * tasks_per_split:
                break
            while task // tasks_per_split >= before + _count_splits(lengths[row], window):
                before += _count_splits(lengths[row], window)
                row += 1
            nth, first = task // tasks_per_split - before, task % tasks_per_split * task_kv_heads
            is_whole = _count_splits(lengths[row], window) == 1
            begin, end = _split_range(lengths[row], window, nth)
            table = args.page_table + 8 * row * args.page_table_stride
            table = carray(at_i64(table), ((end - 1) // page_size + 1,))
            keys = Keys(table, begin, end, page_size, token_bytes, args.page_bytes)
            head = first * group
            q = args.q + 2 * (tokens[row] * args.q_token_stride + head * args.q_head_stride)
            _load_query(q, args.q_head_stride, scale, query)
            own_pages = args.k_pages + 2 * first * dim
            _score_split(keys, own_pages, query, scores, task_kv_heads, group, dim)
            part = args.parts + 4 * ((row * args.max_splits + nth) * heads + head) * (2 + dim)
            parts = carray(at_f32(part), (task_heads, 2 + dim))
            for i in range(task_heads):
                has_sink = args.sinks != 0 and nth == 0
                sink = to_float32(sinks[head + i]) if has_sink else np.float32(LOWEST)
                own = scores.ctypes.data + 4 * i * KEYS_PER_SPLIT
                slope = slopes[head + i] if args.slopes != 0 else np.float32(0)
                before_query = begin - lengths[row] + 1
                highest, totals[i] = _softmax_split(
                    own, end - begin, softcap, slope, before_query, has_sink, sink
                )
                if not is_whole:
                    parts[i, 0], parts[i, 1] = highest, totals[i]
            sums[:] = 0
            own_pages = args.v_pages + 2 * first * dim
            _mix_split(keys, own_pages, scores, sums, task_kv_heads, group, dim)
            out = args.out + 2 * (tokens[row] * heads + head) * dim
            result = carray(at_u16(out), (task_heads, dim))
            for i in range(task_heads):
                for d in range(dim):
                    if is_whole:
                        result[i, d] = to_bfloat16(sums[i, d] / totals[i])
                    else:
                        parts[i, 2 + d] = sums[i, d]

    return Kernel(body, DecodeArguments)


class MergeArguments(NamedTuple):
    """The arguments of `merge_kernel`, as in `DecodeArguments`."""

    out: int
    parts: int
    max_splits: int
    rows: int
    tokens: int
    lengths: int
    kv_heads: int
    window: int


_merge_arguments = reader_of(MergeArguments)


@njit(inline="always")
def _merge_parts(parts: Code, n_splits: Code, sums: Code) -> Code:
    """Sums the values of one head's parts [splits, 2 + dim] in `sums`; returns the weights' sum."""
    highest, total = np.float32(LOWEST), np.float32(0)
    for nth in range(n_splits):
        highest = max(highest, parts[nth, 0])
    sums[:] = 0
    for nth in range(n_splits):
        part = parts[nth]
        share = exp(part[0] - highest)
        total += share * part[1]
        for d in range(len(sums)):
            sums[d] += share * part[2 + d]
    return total


@cache
def merge_kernel(dim: int, group: int) -> Kernel:
    """Adds up the parts that `decode_kernel` left of rows with several splits."""

    def body(block: Code) -> None:
        args = _merge_arguments(block)
        rows, kv_heads, window = args.rows, args.kv_heads, args.window
        tokens, lengths = (
            carray(at_i64(args.tokens), (rows,)),
            carray(at_i64(args.lengths), (rows,)),
        )
        heads = kv_heads * group
        parts = carray(at_f32(args.parts), (rows, args.max_splits, heads, 2 + dim))
        sums = np.empty(dim, np.float32)
        while True:
            task = next_task(block)
            if task >= rows * kv_heads:
                break
            row, first = task // kv_heads, task % kv_heads * group
            n_splits = _count_splits(lengths[row], window)
            if n_splits == 1:
                continue
            for head in range(first, first + group):
                total = _merge_parts(parts[row, :, head], n_splits, sums)
                out = args.out + 2 * (tokens[row] * heads + head) * dim
                result = carray(at_u16(out), (dim,))
                for d in range(dim):
                    result[d] = to_bfloat16(sums[d] / total)

    return Kernel(body, MergeArguments)
