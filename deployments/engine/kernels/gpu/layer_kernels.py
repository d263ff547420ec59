"""Triton kernels of what stands between a layer's matrix products, other than attention: each
token's result depends on that token alone.
"""

import triton
import triton.language as tl


@triton.jit
def divided_to_fp8_range(x, scale, FP8_MAX: tl.constexpr):
    return tl.minimum(tl.maximum(x / scale, -FP8_MAX), FP8_MAX)


@triton.jit
def _norm_weight(q_norm, k_norm, plus, is_query, dim, mask):
    of_queries = tl.load(q_norm + dim, mask=mask & is_query, other=0.0)
    of_keys = tl.load(k_norm + dim, mask=mask & (is_query == 0), other=0.0)
    return tl.where(is_query, of_queries, of_keys).to(tl.float32) + plus


@triton.jit
def _normed(x, q_norm, k_norm, plus, is_query, dim, mask, scale):
    """Numbers of each head, which `scale` norms."""
    return x * (scale * _norm_weight(q_norm, k_norm, plus, is_query, dim, mask))


@triton.jit
def _scale(x, epsilon, DIM: tl.constexpr):
    """The factor that norms each head."""
    return tl.rsqrt(tl.sum(x * x, 1) / DIM + epsilon)[:, None]


@triton.jit(do_not_specialize_on_alignment=["slots"])
def rotary_and_store_kernel(
    qkv, q, k_pages, v_pages, slots, cos, sin, q_scale, q_norm, k_norm, plus, epsilon, k_scale,
    v_scale, qkv_stride, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr,
    ROTATED: tl.constexpr, INTERLEAVED: tl.constexpr, DIM_PADDED: tl.constexpr,
    BLOCK: tl.constexpr, HAS_NORMS: tl.constexpr, NORMS_LAST: tl.constexpr, FP8: tl.constexpr,
    FP8_MAX: tl.constexpr, HAS_SCALE: tl.constexpr,
):  # fmt: skip
    """One program for each token and BLOCK of its heads; a slot below 0 belongs to no token.

    ROTATED: how many of a head's numbers are rotated, the first ones. INTERLEAVED: each with its
    neighbour, not with one of the other half.
    """
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[:, None]
    dim = tl.arange(0, DIM_PADDED)[None, :]
    turned_with = dim ^ 1 if INTERLEAVED else (dim + ROTATED // 2) % ROTATED
    partner_dim = tl.where(dim < ROTATED, turned_with, dim)
    mask = (head < HEADS + 2 * KV_HEADS) & (dim < DIM)
    source = qkv + token * qkv_stride + head * DIM
    given = tl.load(source + dim, mask=mask, other=0.0).to(tl.float32)
    x, partner = given, tl.load(source + partner_dim, mask=mask, other=0.0).to(tl.float32)
    is_query, is_value = head < HEADS, head >= HEADS + KV_HEADS
    if HAS_NORMS and not NORMS_LAST:
        scale = _scale(x, epsilon, DIM)
        x = _normed(x, q_norm, k_norm, plus, is_query, dim, mask, scale)
        partner = _normed(partner, q_norm, k_norm, plus, is_query, partner_dim, mask, scale)
    c = tl.load(cos + token * ROTATED + dim, mask=dim < ROTATED, other=1.0).to(tl.float32)
    s = tl.load(sin + token * ROTATED + dim, mask=dim < ROTATED, other=0.0).to(tl.float32)
    x = x * c + partner * s
    if HAS_NORMS and NORMS_LAST:
        x = _normed(x, q_norm, k_norm, plus, is_query, dim, mask, _scale(x, epsilon, DIM))
    if HAS_SCALE:
        x = tl.where(is_query, x * tl.load(q_scale + token).to(tl.float32), x)
    x = x.to(q.dtype.element_ty)
    tl.store(q + (token * HEADS + head) * DIM + dim, x, mask=mask & is_query)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        # In the model's own type first, as they would be were they stored by themselves.
        key, value = x.to(tl.float32), given
        if FP8:
            key = divided_to_fp8_range(key, k_scale, FP8_MAX)
            value = divided_to_fp8_range(value, v_scale, FP8_MAX)
        target = (slot * KV_HEADS + head - HEADS) * DIM + dim
        is_key = (head >= HEADS) & (head < HEADS + KV_HEADS)
        tl.store(k_pages + target, key.to(k_pages.dtype.element_ty), mask=mask & is_key)
        target -= KV_HEADS * DIM
        tl.store(v_pages + target, value.to(v_pages.dtype.element_ty), mask=mask & is_value)


@triton.jit
def norm_kernel(
    x, weight, residual, out, x_stride, out_stride, epsilon, plus, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, HAS_RESIDUAL: tl.constexpr, CENTERED: tl.constexpr,
):  # fmt: skip
    """One program for a token, all of whose numbers are in registers at once.

    CENTERED: their mean is taken off first, as a LayerNorm does.
    """
    token = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCK)
    mask = index < WIDTH
    given = tl.load(x + token * x_stride + index, mask=mask, other=0.0).to(tl.float32)
    if CENTERED:
        given = tl.where(mask, given - tl.sum(given, 0) / WIDTH, 0.0)
    weights = tl.load(weight + index, mask=mask, other=0.0).to(tl.float32) + plus
    result = given * tl.rsqrt(tl.sum(given * given, 0) / WIDTH + epsilon) * weights
    if HAS_RESIDUAL:
        added = tl.load(residual + token * WIDTH + index, mask=mask, other=0.0)
        result += added.to(tl.float32)
    tl.store(out + token * out_stride + index, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """The activation of `kernels.activations` with this number."""
    inner = x
    if ACTIVATION == 2:  # GELU by the hyperbolic tangent
        inner = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    return x * tl.sigmoid(inner)


@triton.jit
def gate_kernel(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr):
    """The activation of the first WIDTH of a token's numbers, times the other WIDTH."""
    token = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = index < WIDTH
    gate = tl.load(gate_up + token * 2 * WIDTH + index, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (token * 2 + 1) * WIDTH + index, mask=mask, other=0.0).to(tl.float32)
    result = activated(gate, ACTIVATION) * up
    tl.store(out + token * WIDTH + index, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def to_float8_kernel(
    x, out, scales, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FP8_MAX: tl.constexpr,
    MIN_AMAX: tl.constexpr,
):  # fmt: skip
    """A token's numbers as float8, and what they have to be multiplied by."""
    token = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    maxima = tl.zeros([BLOCK], tl.float32)
    for start in range(0, WIDTH, BLOCK):
        given = tl.load(x + token * WIDTH + start + lane, mask=start + lane < WIDTH, other=0.0)
        maxima = tl.maximum(maxima, tl.abs(given.to(tl.float32)))
    scale = tl.maximum(tl.max(maxima, 0), MIN_AMAX) / FP8_MAX
    tl.store(scales + token, scale)
    for start in range(0, WIDTH, BLOCK):
        mask = start + lane < WIDTH
        given = tl.load(x + token * WIDTH + start + lane, mask=mask, other=0.0)
        result = divided_to_fp8_range(given.to(tl.float32), scale, FP8_MAX)
        tl.store(out + token * WIDTH + start + lane, result.to(out.dtype.element_ty), mask=mask)
