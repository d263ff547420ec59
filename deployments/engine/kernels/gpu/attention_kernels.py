"""Triton kernels of attention over KV pages: each row's result depends on that row alone.

Keys are read in blocks that begin at multiples of the block size from position 0, and a decode's
context is split by its own length, so neither depends on the other rows of the batch. What
changes with the batch is not specialized for: a new value would compile a kernel in the middle of
service.
"""

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl

from deployments.engine.kernels.gpu.layer_kernels import divided_to_fp8_range

LOG2_E = tl.constexpr(1.4426950408889634)
PARTS_AT_ONCE = tl.constexpr(8)  # of a context, which are read together


@dataclass(frozen=True)
class Shape:
    """A layer's heads and pages, known to the compiler. What is padded is a power of two.

    Where values are in the keys (latents), they are their first `dim` numbers, and `rest` numbers
    follow. Padded as one, these would take nearly twice the memory.
    """

    heads: int
    kv_heads: int
    group: int  # heads that share one KV head
    group_padded: int  # of these, that one program takes
    dim: int
    dim_padded: int
    page_size: int
    page_stride: int  # numbers from one page of the layer to the next one
    rest: int = 0
    rest_padded: int = 0
    has_values_in_keys: bool = False

    @property
    def key_dim(self) -> int:
        return self.dim + self.rest

    @property
    def blocks(self) -> int:
        """Programs that share one KV head."""
        return -(-self.group // self.group_padded)


@dataclass(frozen=True)
class Scoring:
    """How scores are made, known to the compiler."""

    window: int  # keys that a query sees, its own included; 0 for all
    has_softcap: bool
    has_sinks: bool
    dot_dtype: tl.dtype  # of the factors of matrix products
    has_spans: bool = False  # whether queries may see keys behind their own
    has_slopes: bool = False  # whether distances add to scores


@dataclass(frozen=True)
class Splits:
    """How a decode's context is split, known to the compiler."""

    keys: int  # of a block
    min_keys: int  # of a split
    max_splits: int


class Queries(NamedTuple):
    q: tl.tensor  # [queries, dim_padded]
    rest: tl.tensor  # [queries, rest_padded], or anything where keys have no rest
    position: tl.tensor  # [queries]
    reach: tl.tensor  # [queries], the position of the last key that each sees
    slope: tl.tensor  # [queries], or anything where distances do not count


class Context(NamedTuple):
    """A row's keys and values of one KV head."""

    k_pages: tl.tensor  # pointers to the head's first number in the first page
    v_pages: tl.tensor
    table: tl.tensor  # pointer to the row's pages
    first: tl.tensor  # position of the first key that is read
    last: tl.tensor  # behind the position of the last one


@triton.jit(do_not_specialize_on_alignment=["slots"])
def store_kernel(
    k, v, k_pages, v_pages, slots, k_scale, v_scale, k_token_stride, k_head_stride, v_token_stride,
    v_head_stride, KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    HAS_VALUES: tl.constexpr, FP8: tl.constexpr, FP8_MAX: tl.constexpr,
):  # fmt: skip
    """One program for each token; a slot below 0 belongs to no token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        index = tl.arange(0, SIZE)
        mask = index < KV_HEADS * DIM
        head, dim = index // DIM, index % DIM
        target = slot * (KV_HEADS * DIM) + index
        key = tl.load(k + token * k_token_stride + head * k_head_stride + dim, mask=mask, other=0.0)
        if FP8:
            key = divided_to_fp8_range(key.to(tl.float32), k_scale, FP8_MAX)
        tl.store(k_pages + target, key.to(k_pages.dtype.element_ty), mask=mask)
        if HAS_VALUES:
            value = tl.load(
                v + token * v_token_stride + head * v_head_stride + dim, mask=mask, other=0.0
            )
            if FP8:
                value = divided_to_fp8_range(value.to(tl.float32), v_scale, FP8_MAX)
            tl.store(v_pages + target, value.to(v_pages.dtype.element_ty), mask=mask)


@triton.jit
def lengths_of(row, starts, total_len):
    """Returns a row's first new token's index in the batch, and how many are new and in all."""
    start = tl.load(starts + row).to(tl.int64)
    new = tl.load(starts + row + 1) - start
    return start, new, tl.load(total_len + row).to(tl.int32)


@triton.jit
def context_of(
    k_pages, v_pages, table, row, table_stride, kv_head, first, last, SHAPE: tl.constexpr
):  # fmt: skip
    offset = kv_head * SHAPE.key_dim
    return Context(k_pages + offset, v_pages + offset, table + row * table_stride, first, last)


@triton.jit
def load_queries(
    q, source, mask, position, reach, slopes, head, SHAPE: tl.constexpr, SCORING: tl.constexpr
):  # fmt: skip
    """`source`: where each query begins."""
    DIM: tl.constexpr = SHAPE.dim
    dim = tl.arange(0, SHAPE.dim_padded)
    numbers = mask[:, None] & (dim < DIM)[None, :]
    first = tl.load(q + source[:, None] + dim[None, :], mask=numbers, other=0.0)
    rest = first
    if SHAPE.rest > 0:
        dim = tl.arange(0, SHAPE.rest_padded)
        numbers = mask[:, None] & (dim < SHAPE.rest)[None, :]
        rest = tl.load(q + DIM + source[:, None] + dim[None, :], mask=numbers, other=0.0)
    slope = position
    if SCORING.has_slopes:
        slope = tl.load(slopes + head, mask=mask, other=0.0).to(tl.float32)
    return Queries(first, rest, position, reach, slope)


@triton.jit
def begin_softmax(sinks, head, mask, is_first, QUERIES: tl.constexpr, HAS_SINKS: tl.constexpr):
    """Maximum and sum of each query before its first key: a sink is a key without a value."""
    if HAS_SINKS:
        sink = tl.load(sinks + head, mask=mask, other=0.0).to(tl.float32) * LOG2_E
        row_max = tl.where(is_first, sink, float("-inf"))
        row_sum = tl.where(is_first, 1.0, 0.0) + tl.zeros([QUERIES], tl.float32)
    else:
        row_max = tl.full([QUERIES], float("-inf"), tl.float32)
        row_sum = tl.zeros([QUERIES], tl.float32)
    return row_max, row_sum


@triton.jit
def _load_block(pages, offset, mask, dim, DIM: tl.constexpr):
    """Keys or values, whose `offset`, `mask` and `dim` are laid out for the block's two axes."""
    return tl.load(pages + offset + dim, mask=mask & (dim < DIM), other=0.0)


@triton.jit
def _scores(
    scores, key, queries, mask, scale, softcap, WINDOW: tl.constexpr, SCORING: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Makes scores in base 2 [queries, keys] of the products of queries and keys.

    A score is -inf where a query does not see a key.
    """
    scores *= scale
    if SCORING.has_softcap:
        scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
    if SCORING.has_slopes:
        distance = key[None, :] - queries.position[:, None]
        scores += queries.slope[:, None] * distance.to(tl.float32)
    scores *= LOG2_E
    if MASKED:
        seen = mask[None, :] & (key[None, :] <= queries.reach[:, None])
        if WINDOW > 0:
            seen &= key[None, :] > queries.position[:, None] - WINDOW
        scores = tl.where(seen, scores, float("-inf"))
    return scores


@triton.jit
def attend(
    acc, row_max, row_sum, queries, context, begin, end, scale, softcap, dim,
    KEYS: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, SHAPE: tl.constexpr,
    SCORING: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end), block by block; those outside the context are not read."""
    PAGE: tl.constexpr = SHAPE.page_size
    q = queries.q
    dot_dtype: tl.constexpr = SCORING.dot_dtype
    for start in range(begin, end, KEYS):
        key = start + tl.arange(0, KEYS)
        mask = (key >= context.first) & (key < context.last) if MASKED else key >= 0
        page = tl.load(context.table + key // PAGE, mask=mask, other=0).to(tl.int64)
        offset = page * SHAPE.page_stride + key % PAGE * (SHAPE.kv_heads * SHAPE.key_dim)
        k = _load_block(
            context.k_pages, offset[None, :], mask[None, :], dim[:, None], SHAPE.dim
        ).to(q.dtype)
        products = tl.dot(q.to(dot_dtype), k.to(dot_dtype), input_precision="ieee")
        if SHAPE.rest > 0:
            rest_dim = tl.arange(0, SHAPE.rest_padded)
            k_rest = _load_block(
                context.k_pages + SHAPE.dim, offset[None, :], mask[None, :], rest_dim[:, None],
                SHAPE.rest,
            ).to(q.dtype)  # fmt: skip
            products = tl.dot(
                queries.rest.to(dot_dtype), k_rest.to(dot_dtype), products, input_precision="ieee"
            )
        scores = _scores(products, key, queries, mask, scale, softcap, WINDOW, SCORING, MASKED)
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        # Nothing was seen so far: exp2 of -inf less -inf is no number.
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        rescale = tl.exp2(row_max - safe_max)
        p = tl.exp2(scores - safe_max[:, None])
        if SHAPE.has_values_in_keys:
            v = tl.trans(k)
        else:
            v = _load_block(
                context.v_pages, offset[:, None], mask[:, None], dim[None, :], SHAPE.dim
            ).to(q.dtype)
        row_sum = row_sum * rescale + tl.sum(p, 1)
        added = tl.dot(p.to(q.dtype).to(dot_dtype), v.to(dot_dtype), input_precision="ieee")
        acc = acc * rescale[:, None] + added
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def _split_context(total_tokens, WINDOW: tl.constexpr, SPLITS: tl.constexpr):
    """Returns a decode's first key, where its first block begins, and how many keys a split has."""
    KEYS: tl.constexpr = SPLITS.keys
    first = 0
    if WINDOW > 0:
        first = tl.maximum(0, total_tokens - WINDOW)
    begin = first // KEYS * KEYS
    blocks = tl.cdiv(total_tokens - begin, KEYS)
    split_keys = tl.maximum(SPLITS.min_keys, tl.cdiv(blocks, SPLITS.max_splits) * KEYS)
    return first, begin, split_keys


@triton.jit(
    do_not_specialize=["table_stride", "n_splits"],
    do_not_specialize_on_alignment=["part_sum", "table", "total_len", "starts"],
)
def decode_kernel(
    parts, part_max, part_sum, q, k_pages, v_pages, table, total_len, starts, sinks, slopes, scale,
    softcap, q_token_stride, q_head_stride, table_stride, n_splits, QUERIES: tl.constexpr,
    SHAPE: tl.constexpr, SCORING: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """One program for a split of a row's context, when the row has one new token."""
    DIM_PADDED: tl.constexpr = SHAPE.dim_padded
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1) // SHAPE.blocks
    split = tl.program_id(2)
    start, new, total_tokens = lengths_of(row, starts, total_len)
    first, context_begin, split_keys = _split_context(total_tokens, SCORING.window, SPLITS)
    begin = context_begin + split * split_keys
    if (new == 1) & (begin < total_tokens):
        last = tl.minimum(begin + split_keys, total_tokens)
        lane = tl.arange(0, QUERIES)
        nth_head = tl.program_id(1) % SHAPE.blocks * SHAPE.group_padded + lane
        head = kv_head * SHAPE.group + nth_head
        mask = (lane < SHAPE.group_padded) & (nth_head < SHAPE.group)
        dim = tl.arange(0, DIM_PADDED)
        source = start * q_token_stride + head * q_head_stride
        position = tl.zeros([QUERIES], tl.int32) + total_tokens - 1
        queries = load_queries(
            q, source, mask, position, position, slopes, head, SHAPE, SCORING
        )  # fmt: skip
        row_max, row_sum = begin_softmax(sinks, head, mask, split == 0, QUERIES, SCORING.has_sinks)
        acc = tl.zeros([QUERIES, DIM_PADDED], tl.float32)
        context = context_of(
            k_pages, v_pages, table, row, table_stride, kv_head, first, last, SHAPE
        )
        # Every key in the range is seen: the window's first one begins it.
        acc, row_max, row_sum = attend(
            acc, row_max, row_sum, queries, context, begin, last, scale, softcap, dim,
            SPLITS.keys, 0, True, SHAPE, SCORING,
        )  # fmt: skip
        part = (row * SHAPE.heads + head) * n_splits + split
        tl.store(part_max + part, row_max, mask=mask)
        tl.store(part_sum + part, row_sum, mask=mask)
        target = part[:, None] * DIM_PADDED + dim[None, :]
        tl.store(parts + target, acc, mask=mask[:, None])


@triton.jit(
    do_not_specialize=["n_splits"],
    do_not_specialize_on_alignment=["part_sum", "total_len", "starts"],
)
def merge_kernel(
    out, parts, part_max, part_sum, total_len, starts, v_scale, n_splits, WINDOW: tl.constexpr,
    SHAPE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Adds up a decode's parts, some at a time: how many others have does not matter."""
    DIM_PADDED: tl.constexpr = SHAPE.dim_padded
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    start, new, total_tokens = lengths_of(row, starts, total_len)
    if new == 1:
        dim = tl.arange(0, DIM_PADDED)
        _, context_begin, split_keys = _split_context(total_tokens, WINDOW, SPLITS)
        used = tl.cdiv(total_tokens - context_begin, split_keys)
        part = (row * SHAPE.heads + head) * n_splits
        lane = tl.arange(0, SPLITS.max_splits)
        every_max = tl.load(part_max + part + lane, mask=lane < used, other=float("-inf"))
        row_max = tl.max(every_max, 0)
        acc = tl.zeros([DIM_PADDED], tl.float32)
        row_sum = 0.0
        for first in range(0, used, PARTS_AT_ONCE):
            split = first + tl.arange(0, PARTS_AT_ONCE)
            mask = split < used
            own_max = tl.load(part_max + part + split, mask=mask, other=float("-inf"))
            rescale = tl.exp2(own_max - row_max)
            own_sum = tl.load(part_sum + part + split, mask=mask, other=0.0)
            row_sum += tl.sum(own_sum * rescale, 0)
            source = (part + split)[:, None] * DIM_PADDED + dim[None, :]
            own = tl.load(parts + source, mask=mask[:, None], other=0.0)
            acc += tl.sum(own * rescale[:, None], 0)
        # A padding row has no key, and its result is 0 rather than whatever stood there.
        result = tl.where(used > 0, acc / tl.where(used > 0, row_sum, 1.0), 0.0) * v_scale
        target = (start * SHAPE.heads + head) * SHAPE.key_dim + dim
        tl.store(out + target, result.to(out.dtype.element_ty), mask=dim < SHAPE.dim)
