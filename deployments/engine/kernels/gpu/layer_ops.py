"""Launches the kernels of what stands between a layer's matrix products."""

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.cpu.layer_ops import HeadNorm
from deployments.engine.kernels.gpu import layer_kernels as layer_kernel
from deployments.engine.kernels.gpu.attention_ops import FP8_MAX

NUMBERS = 1024  # that one program takes, as a rule


def turn_and_store(
    qkv: Tensor,  # [tokens, heads + 2 * kv_heads, head_dim], contiguous
    cos: Tensor,  # [tokens, 1, head_dim], contiguous
    sin: Tensor,  # the same, negative in its first half
    norms: tuple[HeadNorm, HeadNorm] | None,  # of queries and of keys
    k_pages: Tensor,  # [pages, page_size, kv_heads, head_dim]
    v_pages: Tensor,
    slots: Tensor,  # [tokens] int64, page * page_size + place; below 0 for none
    scales: tuple[float, float],  # what keys and values are divided by in fp8
) -> Tensor:
    """Queries with their rotary embedding [tokens, heads, head_dim]; keys with theirs and values
    go to their pages."""
    tokens, n, dim = qkv.shape
    kv_heads = k_pages.shape[2]
    heads = n - 2 * kv_heads
    q = torch.empty(tokens, heads, dim, dtype=qkv.dtype, device=qkv.device)
    q_norm, k_norm = (one.weight for one in norms) if norms else (qkv, qkv)
    dim_pad = triton.next_power_of_2(dim)
    block = max(1, NUMBERS // dim_pad)
    layer_kernel.turn_and_store[(tokens, triton.cdiv(n, block))](
        qkv, q, k_pages, v_pages, slots, cos, sin, q_norm, k_norm,
        norms[0].epsilon if norms else 0.0, *scales, qkv.stride(0),
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, DIM_PAD=dim_pad, BLOCK=block,
        NORMED=norms is not None, FP8=k_pages.dtype == torch.float8_e4m3fn, LIMIT=FP8_MAX,
        enable_fp_fusion=True,
    )  # fmt: skip
    return q


def swiglu(both: Tensor) -> Tensor:
    """silu of the first half of each row times its second half. [tokens, 2 * width], contiguous"""
    tokens, width = both.shape[0], both.shape[1] // 2
    out = torch.empty(tokens, width, dtype=both.dtype, device=both.device)
    layer_kernel.swiglu[(tokens, triton.cdiv(width, NUMBERS))](
        both, out, WIDTH=width, BLOCK=min(NUMBERS, triton.next_power_of_2(width)),
        enable_fp_fusion=True,
    )  # fmt: skip
    return out


def to_float8(rows: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Of contiguous [n, width]: as float8_e4m3fn, and what each row has to be multiplied by,
    [n, 1] float32; their greatest numbers are taken to be `least` at least."""
    n, width = rows.shape
    out = torch.empty_like(rows, dtype=torch.float8_e4m3fn)
    scales = torch.empty(n, 1, dtype=torch.float32, device=rows.device)
    layer_kernel.to_float8[(n,)](
        rows, out, scales, WIDTH=width, BLOCK=min(4 * NUMBERS, triton.next_power_of_2(width)),
        LIMIT=FP8_MAX, LEAST=least, num_warps=8, enable_fp_fusion=True,
    )  # fmt: skip
    return out, scales
