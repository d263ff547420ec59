"""Launches the kernels of what stands between a layer's matrix products, other than attention."""

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.gpu.attention_ops import FP8_MAX
from deployments.engine.kernels.gpu.layer_kernels import (
    gate_kernel,
    norm_kernel,
    rotary_and_store_kernel,
    to_float8_kernel,
)
from deployments.engine.kernels.norms import HeadNorm
from deployments.engine.kernels.rotary import RotaryEmbedding

BLOCK = 1024  # numbers that one program takes
FLOAT8_BLOCK = 4096  # numbers that it takes at a time of its row
NUMBERS_OF_A_WARP = 512  # in `norm`: 16 for each thread
MAX_WARPS = 16


def rotary_and_store(
    qkv: Tensor,  # [tokens, heads + 2 * kv_heads, head_dim], contiguous
    rotary: RotaryEmbedding,  # contiguous
    norms: tuple[HeadNorm, HeadNorm] | None,  # of queries and of keys
    k_pages: Tensor,  # [pages, page_size, kv_heads, head_dim]
    v_pages: Tensor,
    slots: Tensor,  # [tokens] int64, page * page stride + offset; below 0 for none
    scales: tuple[float, float],  # what keys and values are divided by in fp8
) -> Tensor:
    """Stores keys, with their rotary embedding, and values in their pages.

    Returns queries with their rotary embedding [tokens, heads, head_dim].
    """
    tokens, n, dim = qkv.shape
    kv_heads = k_pages.shape[2]
    heads = n - 2 * kv_heads
    q = torch.empty(tokens, heads, dim, dtype=qkv.dtype, device=qkv.device)
    q_norm, k_norm = (norm.weight for norm in norms) if norms else (qkv, qkv)
    scale = rotary.cos if rotary.query_scale is None else rotary.query_scale
    dim_padded = triton.next_power_of_2(dim)
    block = max(1, BLOCK // dim_padded)
    rotary_and_store_kernel[(tokens, triton.cdiv(n, block))](
        qkv, q, k_pages, v_pages, slots, rotary.cos, rotary.sin, scale, q_norm, k_norm,
        norms[0].plus if norms else 0.0, norms[0].epsilon if norms else 0.0, *scales,
        qkv.stride(0), HEADS=heads, KV_HEADS=kv_heads, DIM=dim, ROTATED=rotary.cos.shape[-1],
        INTERLEAVED=rotary.is_interleaved, DIM_PADDED=dim_padded, BLOCK=block,
        HAS_NORMS=norms is not None, NORMS_LAST=norms is not None and norms[0].is_behind,
        FP8=k_pages.dtype == torch.float8_e4m3fn, FP8_MAX=FP8_MAX,
        HAS_SCALE=rotary.query_scale is not None,
        enable_fp_fusion=True,
    )  # fmt: skip
    return q


def norm(
    x: Tensor,
    weight: Tensor,
    epsilon: float,
    plus: float = 0.0,
    residual: Tensor | None = None,
    is_centered: bool = False,
) -> Tensor:
    """RMSNorm of each row of contiguous [tokens, width], for a `weight + plus` of [width], or the
    LayerNorm if it is centered, and a `residual` [tokens, width] that is added.

    torch's own takes three times as long for the few rows of a decode.
    """
    out = torch.empty_like(x)
    _norm(x, out, weight, epsilon, plus, residual, is_centered)
    return out


def rms_norm_(x: Tensor, weight: Tensor, epsilon: float, plus: float = 0.0) -> None:
    """The RMSNorm of x [tokens, width] in place. The numbers of a token lie side by side."""
    _norm(x, x, weight, epsilon, plus, None, False)


def _norm(
    x: Tensor,
    out: Tensor,
    weight: Tensor,
    epsilon: float,
    plus: float,
    residual: Tensor | None,
    is_centered: bool,
) -> None:
    tokens, width = x.shape
    added = x if residual is None else residual.contiguous()
    block = triton.next_power_of_2(width)
    norm_kernel[(tokens,)](
        x, weight, added, out, x.stride(0), out.stride(0), epsilon, plus, WIDTH=width, BLOCK=block,
        HAS_RESIDUAL=residual is not None, CENTERED=is_centered,
        num_warps=min(MAX_WARPS, max(1, block // NUMBERS_OF_A_WARP)), enable_fp_fusion=True,
    )  # fmt: skip


def gated(gate_up: Tensor, activation: GateActivation) -> Tensor:
    """The activation of the first half of each row, times its second half.

    [tokens, width] of contiguous [tokens, 2 * width].
    """
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, width, dtype=gate_up.dtype, device=gate_up.device)
    gate_kernel[(tokens, triton.cdiv(width, BLOCK))](
        gate_up, out, WIDTH=width, BLOCK=min(BLOCK, triton.next_power_of_2(width)),
        ACTIVATION=int(activation),
        enable_fp_fusion=True,
    )  # fmt: skip
    return out


def to_float8(rows: Tensor, min_amax: float) -> tuple[Tensor, Tensor]:
    """Scales each row of contiguous [n, width] to the range of float8.

    The largest magnitude of a row is taken to be `min_amax` at least. Returns the rows as
    float8_e4m3fn, and what each has to be multiplied by: [n, 1] float32.
    """
    n, width = rows.shape
    out = torch.empty_like(rows, dtype=torch.float8_e4m3fn)
    scales = torch.empty(n, 1, dtype=torch.float32, device=rows.device)
    to_float8_kernel[(n,)](
        rows, out, scales, WIDTH=width, BLOCK=min(FLOAT8_BLOCK, triton.next_power_of_2(width)),
        FP8_MAX=FP8_MAX, MIN_AMAX=min_amax, num_warps=8, enable_fp_fusion=True,
    )  # fmt: skip
    return out, scales
