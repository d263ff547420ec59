"""Attention to the paged cache, for bfloat16 on a CPU, compiled by numba.

What a token gets from either kernel does not depend on what else that computes, to the last bit:
its keys come in the order of their positions, in blocks that begin at the same positions for all.
"""

from functools import cache

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.attention_ir import LOWEST, mix_tokens, score_tokens, soften
from deployments.engine.kernels.cpu.attention_ir import STAMP as ATTENTION_STAMP
from deployments.engine.kernels.cpu.dispatch import WORDS, Kernel
from deployments.engine.kernels.cpu.matmul_ir import MOST, PACK, multiply_some
from deployments.engine.kernels.cpu.matmul_ir import STAMP as PRODUCT_STAMP
from deployments.engine.kernels.cpu.simd import (
    Code,
    as_bits,
    as_float32,
    as_float64,
    at_f32,
    at_i32,
    at_i64,
    at_u16,
    down,
    exp,
    take,
    up,
)

KEYS = 128  # of a block: scores of so many
SPLIT = 512  # tokens of a row, from a multiple of it on, that one task attends to


@njit(inline="always")
def _page_part(
    table: Code, page: Code, begin: Code, n: Code, page_size: Code, token_bytes: Code, base: Code
) -> Code:
    """What of a row's tokens [begin, n) one of its pages holds: where the first one lies, its
    position, how many they are, and how far ahead the row's next page lies."""
    start = max(begin, page * page_size)
    at = base + (table[page] * page_size + start % page_size) * token_bytes
    count = min(n, (page + 1) * page_size) - start
    following = table[min(page + 1, (n - 1) // page_size)] - table[page]
    return at, start, count, following * page_size * token_bytes


# Loops over numbers side by side, from 0: the compiler makes vectors of no others.


@njit(inline="always")
def _highest(place: Code, count: Code, least: Code) -> Code:
    """Of `count` scores, and `least`."""
    scores = carray(at_i32(place), (count,))
    highest = _ordered(np.int32(as_bits(least)))
    for t in range(count):
        highest = max(highest, _ordered(scores[t]))
    return as_float32(np.uint32(_ordered(highest)))


@njit(inline="always")
def _ordered(bits: Code) -> Code:
    """Of a float32 a whole number that is greater where it is, and the other way round."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(inline="always")
def _rise(place: Code, count: Code, highest: Code) -> Code:
    """Makes exp(score - highest) of scores, and gives the sum."""
    scores = carray(at_f32(place), (count,))
    total = np.float32(0)
    for t in range(count):
        scores[t] = exp(scores[t] - highest)
        total += scores[t]
    return total


@njit(inline="always")
def _cap(place: Code, count: Code, cap: Code) -> None:
    scores = carray(at_f32(place), (count,))
    for t in range(count):
        scores[t] = np.tanh(scores[t] / cap) * cap


@njit(inline="always")
def _splits(length: Code, window: Code) -> Code:
    """How many hold tokens that the last one of a row sees."""
    return (length - 1) // SPLIT - max(0, length - window) // SPLIT + 1


@cache
def decode_kernel(dim: int, group: int) -> Kernel:
    """Attention of one new token a row to the pages of its row.

    A task attends to one split of a row. If that is all of it, it writes what is sought, and else
    what `merge_kernel` takes: of each head the highest score, the sum of the shares, and that of
    the values.

    Arguments: q, its strides of tokens and heads, out [tokens, heads, dim], cache of keys and of
    values [pages, page size, kv heads, dim], rows, their places in the batch, page tables, stride
    of these, tokens of each row, kv heads, page size, window, sinks of the heads or 0, scale, soft
    cap or 0, splits from which on a task is of all heads, parts [rows, splits, heads, 2 + dim],
    splits that a row has room for.
    """

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        rows, kv_heads, page_size, window = a[7], a[12], a[13], a[14]
        scale, cap = np.float32(as_float64(a[16])), np.float32(as_float64(a[17]))
        heads = kv_heads * group
        sinks = carray(at_u16(a[15]), (heads,))
        places, lengths = carray(at_i64(a[8]), (rows,)), carray(at_i64(a[11]), (rows,))
        n_splits = 0
        for length in lengths:
            n_splits += _splits(length, window)
        kv_heads_each = kv_heads if n_splits >= a[18] else 1
        heads_each, tasks_each = kv_heads_each * group, kv_heads // kv_heads_each
        scores = np.empty((heads_each, SPLIT), np.float32)
        query, sums = np.empty((2, heads_each, dim), np.float32)
        totals = np.empty(heads_each, np.float32)
        token_bytes = 2 * kv_heads * dim
        row = before = 0  # splits of the rows before
        while True:
            taken = take(block)
            if taken >= n_splits * tasks_each:
                break
            while taken // tasks_each >= before + _splits(lengths[row], window):
                before += _splits(lengths[row], window)
                row += 1
            nth, first = taken // tasks_each - before, taken % tasks_each * kv_heads_each
            n, is_all = lengths[row], _splits(lengths[row], window) == 1
            seen = max(0, n - window)
            base = (seen // SPLIT + nth) * SPLIT
            begin, end = max(seen, base), min(n, base + SPLIT)
            table = carray(at_i64(a[9] + 8 * row * a[10]), ((end - 1) // page_size + 1,))
            q = a[1] + 2 * (places[row] * a[2] + first * group * a[3])
            for i in range(heads_each):
                given = carray(at_u16(q + 2 * i * a[3]), (dim,))
                for d in range(dim):
                    query[i, d] = up(given[d]) * scale
                    sums[i, d] = 0
            for page in range(begin // page_size, (end - 1) // page_size + 1):
                at, start, count, ahead = _page_part(
                    table, page, begin, end, page_size, token_bytes, a[5] + 2 * first * dim
                )
                for head in range(kv_heads_each):
                    keys = at + 2 * head * dim
                    own = query.ctypes.data + 4 * head * group * dim
                    out = scores.ctypes.data + 4 * (head * group * SPLIT + start - begin)
                    score_tokens(keys, token_bytes, count, ahead, own, out, 4 * SPLIT, group, dim)
            part = a[19] + 4 * ((row * a[20] + nth) * heads + first * group) * (2 + dim)
            parts = carray(at_f32(part), (heads_each, 2 + dim))
            for i in range(heads_each):
                own = scores.ctypes.data + 4 * i * SPLIT
                if cap > 0:
                    _cap(own, end - begin, cap)
                is_sunk = a[15] != 0 and nth == 0
                sink = up(sinks[first * group + i]) if is_sunk else np.float32(LOWEST)
                most = _highest(own, end - begin, sink)
                total = _rise(own, end - begin, most)
                if is_sunk:
                    total += exp(sink - most)
                totals[i] = total
                if not is_all:
                    parts[i, 0], parts[i, 1] = most, total
            for page in range(begin // page_size, (end - 1) // page_size + 1):
                at, start, count, ahead = _page_part(
                    table, page, begin, end, page_size, token_bytes, a[6] + 2 * first * dim
                )
                for head in range(kv_heads_each):
                    values = at + 2 * head * dim
                    shares = scores.ctypes.data + 4 * (head * group * SPLIT + start - begin)
                    into = sums.ctypes.data + 4 * head * group * dim
                    mix_tokens(
                        values, token_bytes, count, ahead, shares, 4 * SPLIT, into, group, dim
                    )
            result = a[4] + 2 * (places[row] * heads + first * group) * dim
            result = carray(at_u16(result), (heads_each, dim))
            for i in range(heads_each):
                for d in range(dim):
                    if is_all:
                        result[i, d] = down(sums[i, d] / totals[i])
                    else:
                        parts[i, 2 + d] = sums[i, d]

    body.__qualname__ += f"_{ATTENTION_STAMP}"
    return Kernel(body, "qqqqqqqqqqqqqqqddqqq")


@cache
def merge_kernel(dim: int, group: int) -> Kernel:
    """What rows of several splits get, of their parts.

    Arguments: out [tokens, heads, dim], parts and splits as of `decode_kernel`, rows, their places
    in the batch, tokens of each row, kv heads, window.
    """

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        rows, kv_heads, window = a[4], a[7], a[8]
        places, lengths = carray(at_i64(a[5]), (rows,)), carray(at_i64(a[6]), (rows,))
        heads = kv_heads * group
        parts = carray(at_f32(a[2]), (rows, a[3], heads, 2 + dim))
        sums = np.empty(dim, np.float32)
        while True:
            taken = take(block)
            if taken >= rows * kv_heads:
                break
            row, first = taken // kv_heads, taken % kv_heads * group
            n_splits = _splits(lengths[row], window)
            if n_splits == 1:
                continue
            for head in range(first, first + group):
                most, total = np.float32(LOWEST), np.float32(0)
                for nth in range(n_splits):
                    most = max(most, parts[row, nth, head, 0])
                sums[:] = 0
                for nth in range(n_splits):
                    part = parts[row, nth, head]
                    share = exp(part[0] - most)
                    total += share * part[1]
                    for d in range(dim):
                        sums[d] += share * part[2 + d]
                result = carray(at_u16(a[1] + 2 * (places[row] * heads + head) * dim), (dim,))
                for d in range(dim):
                    result[d] = down(sums[d] / total)

    return Kernel(body, "qqqqqqqq")


@njit(inline="always")
def _read(
    table: Code,
    cache: Code,
    base: Code,
    begin: Code,
    end: Code,
    kv_heads: Code,
    page_size: Code,
    block: Code,
    dim: Code,
) -> None:
    """Tokens [begin, end) of one head, whose cache begins there, to `block` [tokens, dim], of which
    the first is `base`. Beside them are zeros: what is no number has no share of 0."""
    token_bytes = 2 * kv_heads * dim
    block[: begin - base] = 0
    block[end - base :] = 0
    for page in range(begin // page_size, (end - 1) // page_size + 1):
        at, start, count, _ = _page_part(table, page, begin, end, page_size, token_bytes, cache)
        for t in range(count):
            given = carray(at_u16(at + t * token_bytes), (dim,))
            for d in range(dim):
                block[start - base + t, d] = up(given[d])


@cache
def chunk_kernel(dim: int, group: int) -> Kernel:
    """Attention of pieces of prompts to the pages of their rows.

    A task multiplies its queries with a block of keys, makes shares of the scores as if no more
    keys came, and multiplies these with the values; the next block lessens what was before (the
    online softmax). Queries, a token's heads side by side, are the lanes of vectors.

    Arguments: q, its strides of tokens and heads, out [tokens, heads, dim], cache of keys and of
    values [pages, page size, kv heads, dim], pieces, their [place in the batch, position, tokens,
    row], page tables, stride of these, kv heads, page size, window, sinks of the heads or 0, scale,
    soft cap or 0, most tokens of a piece.
    """

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        n, kv_heads, page_size, window = a[7], a[11], a[12], a[13]
        scale, cap = np.float32(as_float64(a[15])), np.float32(as_float64(a[16]))
        pieces = carray(at_i64(a[8]), (n, 4))
        sinks = carray(at_u16(a[14]), (kv_heads * group,))
        most = (a[17] * group + PACK - 1) // PACK
        query, mixed = np.zeros((2, most, dim + MOST, PACK), np.float32)
        scores = np.empty((most, KEYS, PACK), np.float32)
        queries = np.empty((most, 4, PACK), np.float32)  # see `soften`
        keys, values = np.zeros((2, KEYS + MOST, dim), np.float32)
        while True:
            taken = take(block)
            if taken >= n * kv_heads:
                break
            head, piece = taken % kv_heads, pieces[taken // kv_heads]
            place, position, rows, last = piece[0], piece[1], piece[2] * group, piece[1] + piece[2]
            table = carray(at_i64(a[9] + 8 * piece[3] * a[10]), ((last - 1) // page_size + 1,))
            packs = (rows + PACK - 1) // PACK
            for r in range(packs * PACK):
                nth, j, own = r // PACK, r % PACK, min(r, rows - 1)
                token, of = own // group, head * group + own % group
                given = carray(at_u16(a[1] + 2 * ((place + token) * a[2] + of * a[3])), (dim,))
                for d in range(dim):
                    query[nth, d, j] = up(given[d]) * scale
                queries[nth, 0, j] = as_float32(np.uint32(position + token))
                queries[nth, 1, j] = np.float32(-np.inf) if a[14] == 0 else up(sinks[of])
                queries[nth, 2, j] = np.float32(0) if a[14] == 0 else np.float32(1)
            mixed[:packs] = 0
            first = max(0, position - window + 1)  # that anything here sees
            for base in range(first // KEYS * KEYS, last, KEYS):
                begin, end = max(first, base), min(base + KEYS, last)
                width = (end - base + 1) // 2 * 2
                for at, read in ((a[5], keys), (a[6], values)):
                    at += 2 * head * dim
                    _read(table, at, base, begin, end, kv_heads, page_size, read, dim)
                for nth in range(packs):
                    own, done = query[nth].ctypes.data, 0
                    while done < width:
                        x, into = keys[done].ctypes.data, scores[nth, done].ctypes.data
                        left = width - done
                        done += multiply_some(own, 0, x, dim, 1, 0, into, dim, left, PACK, 32, 0)
                    if cap > 0:
                        _cap(scores[nth].ctypes.data, width * PACK, cap)
                    own, of = scores[nth].ctypes.data, queries[nth].ctypes.data
                    if base + width - 1 > position or base < last - window:
                        soften(own, width, base, window, of, PACK, 1)
                    else:
                        soften(own, width, base, window, of, PACK, 0)
                    fade, done = queries[nth, 3].ctypes.data, 0
                    while done < dim:
                        x, into = values.ctypes.data + 4 * done, mixed[nth, done].ctypes.data
                        left = dim - done
                        done += multiply_some(
                            own, fade, x, 1, dim, 0, into, width, left, PACK, 32, 1
                        )
            for r in range(rows):
                nth, j = r // PACK, r % PACK
                of = (place + r // group) * kv_heads * group + head * group + r % group
                result = carray(at_u16(a[4] + 2 * of * dim), (dim,))
                for d in range(dim):
                    result[d] = down(mixed[nth, d, j] / queries[nth, 2, j])

    body.__qualname__ += f"_{PRODUCT_STAMP}_{ATTENTION_STAMP}"
    return Kernel(body, "qqqqqqqqqqqqqqddq")
