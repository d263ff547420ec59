# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""Triton kernels of what stands between a layer's matrix products, but for attention.

Every token's result is a function of that token alone.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["slots"])
def turn_and_store(
    qkv, q, k_pages, v_pages, slots, cos, sin, q_norm, k_norm, epsilon, k_scale, v_scale,
    qkv_token, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr,
    DIM_PAD: tl.constexpr, BLOCK: tl.constexpr, NORMED: tl.constexpr, FP8: tl.constexpr,
    LIMIT: tl.constexpr,
):  # fmt: skip
    """One program a token and BLOCK of its heads; a slot below 0 is of no token."""
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[:, None]
    dim = tl.arange(0, DIM_PAD)[None, :]
    other = (dim + DIM // 2) % DIM
    inside = (head < HEADS + 2 * KV_HEADS) & (dim < DIM)
    start = qkv + token * qkv_token + head * DIM
    given = tl.load(start + dim, mask=inside, other=0.0).to(tl.float32)
    x, turned = given, tl.load(start + other, mask=inside, other=0.0).to(tl.float32)
    is_query, is_value = head < HEADS, head >= HEADS + KV_HEADS
    if NORMED:
        scale = tl.rsqrt(tl.sum(x * x, 1) / DIM + epsilon)[:, None]
        x *= scale * _weight(q_norm, k_norm, is_query, dim, inside)
        turned *= scale * _weight(q_norm, k_norm, is_query, other, inside)
    c = tl.load(cos + token * DIM + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    s = tl.load(sin + token * DIM + dim, mask=dim < DIM, other=0.0).to(tl.float32)
    x = x * c + turned * s
    tl.store(
        q + (token * HEADS + head) * DIM + dim, x.to(q.dtype.element_ty), mask=inside & is_query
    )
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        # In the model's own type first, as they would be were they stored by themselves.
        key, value = x.to(q.dtype.element_ty).to(tl.float32), given
        if FP8:
            key = tl.minimum(tl.maximum(key / k_scale, -LIMIT), LIMIT)
            value = tl.minimum(tl.maximum(value / v_scale, -LIMIT), LIMIT)
        place = (slot * KV_HEADS + head - HEADS) * DIM + dim
        is_key = (head >= HEADS) & (head < HEADS + KV_HEADS)
        tl.store(k_pages + place, key.to(k_pages.dtype.element_ty), mask=inside & is_key)
        place -= KV_HEADS * DIM
        tl.store(v_pages + place, value.to(v_pages.dtype.element_ty), mask=inside & is_value)


@triton.jit
def _weight(q_norm, k_norm, is_query, dim, inside):
    of_queries = tl.load(q_norm + dim, mask=inside & is_query, other=0.0)
    of_keys = tl.load(k_norm + dim, mask=inside & (is_query == 0), other=0.0)
    return tl.where(is_query, of_queries, of_keys).to(tl.float32)


@triton.jit
def swiglu(both, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """silu of the first half of a token's numbers times the second half, which is WIDTH long."""
    token = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < WIDTH
    gate = tl.load(both + token * 2 * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + (token * 2 + 1) * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up
    tl.store(out + token * WIDTH + place, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def to_float8(
    x, out, scales, WIDTH: tl.constexpr, BLOCK: tl.constexpr, LIMIT: tl.constexpr,
    LEAST: tl.constexpr,
):  # fmt: skip
    """A token's numbers as float8, and what they have to be multiplied by."""
    token = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    peaks = tl.zeros([BLOCK], tl.float32)
    for start in range(0, WIDTH, BLOCK):
        given = tl.load(x + token * WIDTH + start + place, mask=start + place < WIDTH, other=0.0)
        peaks = tl.maximum(peaks, tl.abs(given.to(tl.float32)))
    scale = tl.maximum(tl.max(peaks, 0), LEAST) / LIMIT
    tl.store(scales + token, scale)
    for start in range(0, WIDTH, BLOCK):
        inside = start + place < WIDTH
        given = tl.load(x + token * WIDTH + start + place, mask=inside, other=0.0)
        share = tl.minimum(tl.maximum(given.to(tl.float32) / scale, -LIMIT), LIMIT)
        tl.store(out + token * WIDTH + start + place, share.to(out.dtype.element_ty), mask=inside)
