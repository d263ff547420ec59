# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""Triton kernels of attention over KV pages: every row's result is a function of that row alone.

Keys are visited in blocks that begin at multiples of the block size from position 0, and a
decode's context is cut by its own length: neither knows of the other rows of the batch. Arguments
are not specialized for what changes with the batch: that would compile in the middle of service.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["slots"])
def store(
    k, v, k_pages, v_pages, slots, k_scale, v_scale, k_token, k_head, v_token, v_head,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, FP8: tl.constexpr,
    LIMIT: tl.constexpr,
):  # fmt: skip
    """One program a token; a slot below 0 is of no token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        place = tl.arange(0, SIZE)
        inside = place < KV_HEADS * DIM
        head, dim = place // DIM, place % DIM
        key = tl.load(k + token * k_token + head * k_head + dim, mask=inside, other=0.0)
        value = tl.load(v + token * v_token + head * v_head + dim, mask=inside, other=0.0)
        if FP8:
            key = tl.minimum(tl.maximum(key.to(tl.float32) / k_scale, -LIMIT), LIMIT)
            value = tl.minimum(tl.maximum(value.to(tl.float32) / v_scale, -LIMIT), LIMIT)
        target = slot * (KV_HEADS * DIM) + place
        tl.store(k_pages + target, key.to(k_pages.dtype.element_ty), mask=inside)
        tl.store(v_pages + target, value.to(v_pages.dtype.element_ty), mask=inside)


@triton.jit
def _begin(sinks, head, known, is_first, QUERIES: tl.constexpr, SINKS: tl.constexpr):
    """Greatest score so far and the sum of weights: a sink is a key without a value."""
    if SINKS:
        sink = tl.load(sinks + head, mask=known, other=0.0).to(tl.float32) * 1.4426950408889634
        peak = tl.where(is_first, sink, float("-inf"))
        weight = tl.where(is_first, 1.0, 0.0) + tl.zeros([QUERIES], tl.float32)
    else:
        peak = tl.full([QUERIES], float("-inf"), tl.float32)
        weight = tl.zeros([QUERIES], tl.float32)
    return peak, weight


@triton.jit
def _visit(
    total, peak, weight, q, k_pages, v_pages, table, position, begin, end, first, last, scale,
    softcap, dim, PAGE: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr,
    KEYS: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, FACTOR: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the keys of [begin, end), block by block; what is outside [first, last) is not read."""
    for start in range(begin, end, KEYS):
        key = start + tl.arange(0, KEYS)
        inside = (key >= first) & (key < last) if MASKED else key >= 0
        page = tl.load(table + key // PAGE, mask=inside, other=0).to(tl.int64)
        place = (page * PAGE + key % PAGE) * (KV_HEADS * DIM)
        k = tl.load(
            k_pages + place[None, :] + dim[:, None],
            mask=inside[None, :] & (dim < DIM)[:, None],
            other=0.0,
        ).to(q.dtype)
        scores = tl.dot(q.to(FACTOR), k.to(FACTOR), input_precision="ieee") * scale
        if SOFTCAP:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        scores *= 1.4426950408889634
        if MASKED:
            seen = inside[None, :] & (key[None, :] <= position[:, None])
            if WINDOW > 0:
                seen &= key[None, :] > position[:, None] - WINDOW
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        # Nothing was seen so far: exp2 of -inf less -inf is no number.
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        fade = tl.exp2(peak - safe)
        share = tl.exp2(scores - safe[:, None])
        v = tl.load(
            v_pages + place[:, None] + dim[None, :],
            mask=inside[:, None] & (dim < DIM)[None, :],
            other=0.0,
        ).to(q.dtype)
        weight = weight * fade + tl.sum(share, 1)
        added = tl.dot(share.to(q.dtype).to(FACTOR), v.to(FACTOR), input_precision="ieee")
        total = total * fade[:, None] + added
        peak = higher
    return total, peak, weight


@triton.jit(
    do_not_specialize=["table_row"],
    do_not_specialize_on_alignment=["table", "total_len", "starts", "tiles"],
)
def chunks(
    out, q, k_pages, v_pages, table, total_len, starts, tiles, sinks, scale, softcap, v_scale,
    q_token, q_head, table_row, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SHARE: tl.constexpr,
    SHARE_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, PAGE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """One program for some new tokens of a row and the heads that share one head's keys."""
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    row = tl.load(tiles + 2 * tile).to(tl.int64)
    offset = tl.load(tiles + 2 * tile + 1)
    start = tl.load(starts + row).to(tl.int64)
    new = (tl.load(starts + row + 1) - start).to(tl.int32)
    total_tokens = tl.load(total_len + row).to(tl.int32)
    lane = tl.arange(0, QUERIES)
    token = offset.to(tl.int32) + lane // SHARE_PAD
    head = kv_head * SHARE + lane % SHARE_PAD
    known = (token < new) & (lane % SHARE_PAD < SHARE)
    position = total_tokens - new + token
    dim = tl.arange(0, DIM_PAD)
    wanted = known[:, None] & (dim < DIM)[None, :]
    queries = tl.load(
        q + (start + token)[:, None] * q_token + head[:, None] * q_head + dim[None, :],
        mask=wanted,
        other=0.0,
    )
    lowest = total_tokens - new + offset.to(tl.int32)
    last = tl.minimum(total_tokens, lowest + QUERIES // SHARE_PAD)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(0, lowest - WINDOW + 1)
    begin = first // KEYS * KEYS
    peak, weight = _begin(sinks, head, known, True, QUERIES, SINKS)
    total = tl.zeros([QUERIES, DIM_PAD], tl.float32)
    k_head, v_head = k_pages + kv_head * DIM, v_pages + kv_head * DIM
    row_table = table + row * table_row
    if WINDOW == 0:  # blocks that every query sees whole need no masks
        whole = (lowest + 1) // KEYS * KEYS
        total, peak, weight = _visit(
            total, peak, weight, queries, k_head, v_head, row_table, position,
            begin, whole, first, last, scale, softcap, dim,
            PAGE, KV_HEADS, DIM, KEYS, WINDOW, SOFTCAP, FACTOR, False,
        )  # fmt: skip
        begin = whole
    total, peak, weight = _visit(
        total, peak, weight, queries, k_head, v_head, row_table, position,
        begin, last, first, last, scale, softcap, dim,
        PAGE, KV_HEADS, DIM, KEYS, WINDOW, SOFTCAP, FACTOR, True,
    )  # fmt: skip
    result = total / weight[:, None] * v_scale
    place = ((start + token)[:, None] * HEADS + head[:, None]) * DIM + dim[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=wanted)


@triton.jit
def _context(total_tokens, WINDOW: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr,
             SPLITS: tl.constexpr):  # fmt: skip
    """Of a decode: its first key, where the first block begins, keys of a split."""
    first = 0
    if WINDOW > 0:
        first = tl.maximum(0, total_tokens - WINDOW)
    begin = first // KEYS * KEYS
    blocks = tl.cdiv(total_tokens - begin, KEYS)
    each = tl.maximum(SPLIT, tl.cdiv(blocks, SPLITS) * KEYS)
    return first, begin, each


@triton.jit(
    do_not_specialize=["table_row", "n_splits"],
    do_not_specialize_on_alignment=["weights", "table", "total_len", "starts"],
)
def decodes(
    parts, peaks, weights, q, k_pages, v_pages, table, total_len, starts, sinks, scale, softcap,
    q_token, q_head, table_row, n_splits, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    SHARE: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, PAGE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr, SPLITS: tl.constexpr,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """One program for a part of a row's context, when the row has one new token."""
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    start = tl.load(starts + row).to(tl.int64)
    new = tl.load(starts + row + 1) - start
    total_tokens = tl.load(total_len + row).to(tl.int32)
    first, context, each = _context(total_tokens, WINDOW, KEYS, SPLIT, SPLITS)
    begin = context + split * each
    if (new == 1) & (begin < total_tokens):
        last = tl.minimum(begin + each, total_tokens)
        lane = tl.arange(0, QUERIES)
        head = kv_head * SHARE + lane
        known = lane < SHARE
        dim = tl.arange(0, DIM_PAD)
        wanted = known[:, None] & (dim < DIM)[None, :]
        queries = tl.load(
            q + start * q_token + head[:, None] * q_head + dim[None, :], mask=wanted, other=0.0
        )
        peak, weight = _begin(sinks, head, known, split == 0, QUERIES, SINKS)
        total = tl.zeros([QUERIES, DIM_PAD], tl.float32)
        # Every key in the range is seen: the window's first one begins it.
        total, peak, weight = _visit(
            total, peak, weight, queries, k_pages + kv_head * DIM, v_pages + kv_head * DIM,
            table + row * table_row, tl.zeros([QUERIES], tl.int32) + total_tokens,
            begin, last, first, last, scale, softcap, dim,
            PAGE, KV_HEADS, DIM, KEYS, 0, SOFTCAP, FACTOR, True,
        )  # fmt: skip
        part = (row * HEADS + head) * n_splits + split
        tl.store(peaks + part, peak, mask=known)
        tl.store(weights + part, weight, mask=known)
        tl.store(parts + part[:, None] * DIM_PAD + dim[None, :], total, mask=known[:, None])


@triton.jit(
    do_not_specialize=["n_splits"],
    do_not_specialize_on_alignment=["weights", "total_len", "starts"],
)
def merge(
    out, parts, peaks, weights, total_len, starts, v_scale, n_splits, HEADS: tl.constexpr,
    DIM: tl.constexpr, DIM_PAD: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr,
    SPLITS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Adds up a decode's parts, eight by eight: others' numbers of them do not matter."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    start = tl.load(starts + row).to(tl.int64)
    new = tl.load(starts + row + 1) - start
    total_tokens = tl.load(total_len + row).to(tl.int32)
    if new == 1:
        dim = tl.arange(0, DIM_PAD)
        _, context, each = _context(total_tokens, WINDOW, KEYS, SPLIT, SPLITS)
        used = tl.cdiv(total_tokens - context, each)
        part = (row * HEADS + head) * n_splits
        lane = tl.arange(0, SPLITS)
        all_peaks = tl.load(peaks + part + lane, mask=lane < used, other=float("-inf"))
        peak = tl.max(all_peaks, 0)
        total = tl.zeros([DIM_PAD], tl.float32)
        weight = 0.0
        for first in range(0, used, 8):
            split = first + tl.arange(0, 8)
            there = split < used
            fade = tl.exp2(tl.load(peaks + part + split, mask=there, other=float("-inf")) - peak)
            weight += tl.sum(tl.load(weights + part + split, mask=there, other=0.0) * fade, 0)
            place = (part + split)[:, None] * DIM_PAD + dim[None, :]
            total += tl.sum(
                tl.load(parts + place, mask=there[:, None], other=0.0) * fade[:, None], 0
            )
        # A padding row has no key, and its result is 0 rather than whatever stood there.
        result = tl.where(used > 0, total / tl.where(used > 0, weight, 1.0), 0.0) * v_scale
        place = (start * HEADS + head) * DIM + dim
        tl.store(out + place, result.to(out.dtype.element_ty), mask=dim < DIM)
