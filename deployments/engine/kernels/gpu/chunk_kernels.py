"""Triton kernels of attention over KV pages for rows with more than one new token.

The keys are split at multiples of a fixed number of keys from position 0. The sums over each split
are made apart and added up in order. So a token's result depends neither on the other rows of the
batch, nor on where its prompt is cut, nor on how many programs share the splits of a tile.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from deployments.engine.kernels.gpu.attention_kernels import (
    PARTS_AT_ONCE,
    attend,
    begin_softmax,
    context_of,
    lengths_of,
    load_queries,
)


class Tile(NamedTuple):
    """Some of a row's new tokens with the heads that share one KV head, as queries."""

    row: tl.tensor
    token: tl.tensor  # [queries], in the batch
    head: tl.tensor  # [queries]
    mask: tl.tensor  # [queries], whether there is such a query
    position: tl.tensor  # [queries]
    reach: tl.tensor  # [queries], the position of the last key that each sees
    lowest: tl.tensor  # of the positions
    first: tl.tensor  # position of the first key that a query sees
    last: tl.tensor  # behind the position of the last one


@triton.jit
def _tile(
    tiles, index, program, lane, starts, total_len, QUERIES: tl.constexpr, SHAPE: tl.constexpr,
    SCORING: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = 4 if SCORING.has_spans else 2
    row = tl.load(tiles + WIDTH * index).to(tl.int64)
    offset = tl.load(tiles + WIDTH * index + 1).to(tl.int32)
    start, new, total_tokens = lengths_of(row, starts, total_len)
    new = new.to(tl.int32)
    token = offset + lane // SHAPE.group_padded
    nth_head = program % SHAPE.blocks * SHAPE.group_padded + lane % SHAPE.group_padded
    head = program // SHAPE.blocks * SHAPE.group + nth_head
    lowest = total_tokens - new + offset
    last = tl.minimum(total_tokens, lowest + QUERIES // SHAPE.group_padded)
    position = lowest + token - offset
    end, reach = new, position
    if SCORING.has_spans:
        end = tl.load(tiles + WIDTH * index + 2).to(tl.int32)
        seen = tl.load(tiles + WIDTH * index + 3).to(tl.int32)
        last = tl.maximum(last, seen)
        reach = tl.maximum(position, seen - 1)
    mask = (token < end) & (nth_head < SHAPE.group)
    first = 0
    if SCORING.window > 0:
        first = tl.maximum(0, lowest - SCORING.window + 1)
    return Tile(row, start + token, head, mask, position, reach, lowest, first, last)


@triton.jit
def _attend_split(
    queries, context, split, lowest, scale, softcap, dim, QUERIES: tl.constexpr,
    KEYS: tl.constexpr, SPLIT_KEYS: tl.constexpr, SHAPE: tl.constexpr, SCORING: tl.constexpr,
):  # fmt: skip
    """Sums of a tile of queries, of which `lowest` is the first one's position, over one split."""
    WINDOW: tl.constexpr = SCORING.window
    DIM_PADDED: tl.constexpr = SHAPE.dim_padded
    acc = tl.zeros([QUERIES, DIM_PADDED], tl.float32)
    row_max = tl.full([QUERIES], float("-inf"), tl.float32)
    row_sum = tl.zeros([QUERIES], tl.float32)
    begin = tl.maximum(context.first // KEYS * KEYS, split * SPLIT_KEYS)
    end = tl.minimum(context.last, (split + 1) * SPLIT_KEYS)
    if WINDOW == 0:  # blocks that every query sees whole need no masks
        whole = tl.maximum(begin, tl.minimum(end, (lowest + 1) // KEYS * KEYS))
        acc, row_max, row_sum = attend(
            acc, row_max, row_sum, queries, context, begin, whole, scale, softcap, dim,
            KEYS, WINDOW, False, SHAPE, SCORING,
        )  # fmt: skip
        begin = whole
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, queries, context, begin, end, scale, softcap, dim,
        KEYS, WINDOW, True, SHAPE, SCORING,
    )  # fmt: skip
    return acc, row_max, row_sum


@triton.jit
def _add_split(acc, row_max, row_sum, split_acc, split_max, split_sum):
    """A split that a query sees nothing of changes none of its bits."""
    new_max = tl.maximum(row_max, split_max)
    safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
    rescale = tl.exp2(row_max - safe_max)
    split_rescale = tl.exp2(split_max - safe_max)
    acc = acc * rescale[:, None] + split_acc * split_rescale[:, None]
    return acc, new_max, row_sum * rescale + split_sum * split_rescale


@triton.jit
def _store_tile(out, tile, acc, row_sum, v_scale, dim, SHAPE: tl.constexpr):
    result = acc / row_sum[:, None] * v_scale
    target = (tile.token * SHAPE.heads + tile.head)[:, None] * SHAPE.key_dim + dim[None, :]
    mask = tile.mask[:, None] & (dim < SHAPE.dim)[None, :]
    tl.store(out + target, result.to(out.dtype.element_ty), mask=mask)


@triton.jit(
    do_not_specialize=["table_stride", "n_splits"],
    do_not_specialize_on_alignment=["part_sum", "table", "total_len", "starts", "tiles"],
)
def chunk_kernel(
    out, parts, part_max, part_sum, q, k_pages, v_pages, table, total_len, starts, tiles, sinks,
    slopes, scale, softcap, v_scale, q_token_stride, q_head_stride, table_stride, n_splits,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, SPLIT_KEYS: tl.constexpr, IS_SPLIT: tl.constexpr,
    SHAPE: tl.constexpr, SCORING: tl.constexpr,
):  # fmt: skip
    """One program for a tile of a row's new tokens and heads that share one KV head.

    Its sums over each split of the keys are made apart, and added up in order. With `IS_SPLIT`
    there is a program for each split, and `chunk_merge_kernel` adds up what they store.
    """
    DIM_PADDED: tl.constexpr = SHAPE.dim_padded
    program, n_programs = tl.program_id(1), SHAPE.kv_heads * SHAPE.blocks
    lane = tl.arange(0, QUERIES)
    tile = _tile(tiles, tl.program_id(0), program, lane, starts, total_len, QUERIES, SHAPE, SCORING)
    dim = tl.arange(0, DIM_PADDED)
    source = tile.token * q_token_stride + tile.head * q_head_stride
    queries = load_queries(
        q, source, tile.mask, tile.position, tile.reach, slopes, tile.head, SHAPE, SCORING
    )  # fmt: skip
    context = context_of(
        k_pages, v_pages, table, tile.row, table_stride, program // SHAPE.blocks, tile.first,
        tile.last, SHAPE,
    )  # fmt: skip
    begin, end = tile.first // SPLIT_KEYS, tl.cdiv(tile.last, SPLIT_KEYS)
    if IS_SPLIT:
        split = begin + tl.program_id(2)
        if split < end:
            acc, row_max, row_sum = _attend_split(
                queries, context, split, tile.lowest, scale, softcap, dim,
                QUERIES, KEYS, SPLIT_KEYS, SHAPE, SCORING,
            )  # fmt: skip
            part = (tl.program_id(0).to(tl.int64) * n_programs + program) * n_splits
            part = (part + tl.program_id(2)) * QUERIES + lane
            tl.store(part_max + part, row_max, mask=tile.mask)
            tl.store(part_sum + part, row_sum, mask=tile.mask)
            target = part[:, None] * DIM_PADDED + dim[None, :]
            tl.store(parts + target, acc, mask=tile.mask[:, None])
    else:
        acc = tl.zeros([QUERIES, DIM_PADDED], tl.float32)
        row_max, row_sum = begin_softmax(
            sinks, tile.head, tile.mask, True, QUERIES, SCORING.has_sinks
        )
        # What was added up waits in local memory meanwhile: registers have room for one split.
        for split in range(begin, end):
            split_acc, split_max, split_sum = _attend_split(
                queries, context, split, tile.lowest, scale, softcap, dim,
                QUERIES, KEYS, SPLIT_KEYS, SHAPE, SCORING,
            )  # fmt: skip
            acc, row_max, row_sum = _add_split(
                acc, row_max, row_sum, split_acc, split_max, split_sum
            )
        _store_tile(out, tile, acc, row_sum, v_scale, dim, SHAPE)


@triton.jit(
    do_not_specialize=["n_splits"],
    do_not_specialize_on_alignment=["part_sum", "total_len", "starts", "tiles"],
)
def chunk_merge_kernel(
    out, parts, part_max, part_sum, total_len, starts, tiles, sinks, v_scale, n_splits,
    QUERIES: tl.constexpr, LANES: tl.constexpr, SPLIT_KEYS: tl.constexpr, SHAPE: tl.constexpr,
    SCORING: tl.constexpr,
):  # fmt: skip
    """Adds up the splits of some queries of a tile, as `chunk_kernel` does for all of them."""
    DIM_PADDED: tl.constexpr = SHAPE.dim_padded
    program, n_programs = tl.program_id(1), SHAPE.kv_heads * SHAPE.blocks
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    tile = _tile(tiles, tl.program_id(0), program, lane, starts, total_len, QUERIES, SHAPE, SCORING)
    used = tl.cdiv(tile.last, SPLIT_KEYS) - tile.first // SPLIT_KEYS
    own = tl.where(tile.mask, used, 0)
    dim = tl.arange(0, DIM_PADDED)
    acc = tl.zeros([LANES, DIM_PADDED], tl.float32)
    row_max, row_sum = begin_softmax(sinks, tile.head, tile.mask, True, LANES, SCORING.has_sinks)
    first_part = (tl.program_id(0).to(tl.int64) * n_programs + program) * n_splits
    for first in range(0, used, PARTS_AT_ONCE):
        for split in tl.static_range(PARTS_AT_ONCE):  # which are loaded together
            part = (first_part + first + split) * QUERIES + lane
            mask = first + split < own
            split_max = tl.load(part_max + part, mask=mask, other=float("-inf"))
            split_sum = tl.load(part_sum + part, mask=mask, other=0.0)
            source = part[:, None] * DIM_PADDED + dim[None, :]
            split_acc = tl.load(parts + source, mask=mask[:, None], other=0.0)
            acc, row_max, row_sum = _add_split(
                acc, row_max, row_sum, split_acc, split_max, split_sum
            )
    row_sum = tl.where(tile.mask, row_sum, 1.0)
    _store_tile(out, tile, acc, row_sum, v_scale, dim, SHAPE)
