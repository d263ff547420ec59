"""Launches the kernels of what LoRA adapters add."""

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.gpu.adapter_kernels import expand_kernel, shrink_kernel
from deployments.engine.kernels.gpu.attention_ops import dot_dtype

TOKENS, INPUTS = 16, 64  # of a program


def shrink(a: Tensor, x: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
    """A x: a [slots, parts, rank, in], x [tokens, in] -> float32 [n, parts, rank], where the rank
    is a power of two from 16 on.

    tokens [n] are indices of tokens, those of slot i from begins[i] to begins[i + 1].
    """
    n_slots, parts, rank, width = a.shape
    x = x.contiguous()
    out = torch.empty(len(tokens), parts, rank, dtype=torch.float32, device=x.device)
    shrink_kernel[(triton.cdiv(len(tokens), TOKENS), parts, n_slots)](
        x, tokens, begins, a, out, WIDTH=width, PARTS=parts, RANK=rank, TOKENS=TOKENS,
        INPUTS=INPUTS, DOT=dot_dtype(x.dtype),
    )  # fmt: skip
    return out


def expand_(
    b: Tensor, out: Tensor, shrunk: Tensor, tokens: Tensor, begins: Tensor, blocks: Tensor,
    block_size: int, first: int,
) -> None:  # fmt: skip
    """Adds B shrunk to out [tokens, outputs], which are those from `first` on.

    b [slots, all outputs, rank]; blocks [n, 3] int64: of each block of outputs the part, the first
    one of all, and how many there are: no more than `block_size`.
    """
    n_slots, n_outs, rank = b.shape
    expand_kernel[(triton.cdiv(len(tokens), TOKENS), len(blocks), n_slots)](
        shrunk, tokens, begins, blocks, b, out, first, out.stride(0), OUTS=n_outs,
        PARTS=shrunk.shape[1], RANK=rank, TOKENS=TOKENS, OUTPUTS=block_size, DOT=dot_dtype(b.dtype),
    )  # fmt: skip
