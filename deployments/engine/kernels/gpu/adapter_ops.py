"""Launches the kernels of what LoRA adapters add."""

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.gpu.adapter_kernels import expand_kernel, shrink_kernel
from deployments.engine.kernels.gpu.attention_ops import dot_dtype

TOKENS = 16  # of a program
INPUTS = 64  # of a block that it multiplies at once
# Decodes have too few tokens to fill a GPU: their inputs are split among programs, so many to each.
SPLIT_INPUTS, MAX_SPLIT_TOKENS = 512, 512


def shrink(a: Tensor, x: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
    """A x, as the sum over splits of the inputs: a [slots, parts, rank, in], x [tokens, in] ->
    float32 [splits, n, parts, rank], where the rank is a power of two from 16 on.

    tokens [n] are indices of tokens, those of slot i from begins[i] to begins[i + 1].
    """
    n_slots, parts, rank, width = a.shape
    x, n = x.contiguous(), len(tokens)
    share = SPLIT_INPUTS if n <= MAX_SPLIT_TOKENS else width
    splits = triton.cdiv(width, share)
    out = torch.empty(splits, n, parts, rank, dtype=torch.float32, device=x.device)
    shrink_kernel[(triton.cdiv(n, TOKENS), parts * splits, n_slots)](
        x, tokens, begins, a, out, n, WIDTH=width, SHARE=share, PARTS=parts, RANK=rank,
        TOKENS=TOKENS, INPUTS=INPUTS, DOT=dot_dtype(x.dtype),
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
    splits, n, parts, _ = shrunk.shape
    expand_kernel[(triton.cdiv(n, TOKENS), len(blocks), n_slots)](
        shrunk, tokens, begins, blocks, b, out, n, first, out.stride(0), OUTS=n_outs, SPLITS=splits,
        PARTS=parts, RANK=rank, TOKENS=TOKENS, OUTPUTS=block_size, DOT=dot_dtype(b.dtype),
    )  # fmt: skip
