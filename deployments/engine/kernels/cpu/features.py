"""The products that this processor computes fast, and the tensors that the kernels take."""

from functools import cache
from platform import machine

import torch
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import TEAM
from deployments.engine.kernels.cpu.simd import HAS_FMA


def is_cpu_bf16(x: Tensor) -> bool:
    """Whether these kernels can compute with a tensor of this kind."""
    return x.device.type == "cpu" and x.dtype is torch.bfloat16


def has_matmul_kernels() -> bool:
    """Whether `product` is worth more than one row or two: it has been measured on x86 alone."""
    return machine() in ("x86_64", "AMD64") and HAS_FMA and TEAM is not None


# What the inductor compiler packs weights with; it has no other public name.
PACKING = ("_reorder_linear_weight", "_linear_pointwise")


@cache
def has_native_bf16() -> bool:
    """Whether this processor multiplies bfloat16, and torch can pack matrices for it."""
    known = all(hasattr(torch.ops.mkldnn, name) for name in PACKING)
    return known and torch.cpu._is_avx512_bf16_supported()


def has_bf16_tiles() -> bool:
    """Whether this processor multiplies tiles of bfloat16, many times as fast as vectors."""
    return has_native_bf16() and torch.cpu._is_amx_tile_supported()
