"""Launches the kernel of the draw."""

import torch
import triton
from torch import Tensor

from deployments.engine.kernels.gpu.draw_kernels import draw_kernel

BLOCK = 2048  # tokens that a program looks at


def draw_(
    token_ids: Tensor,  # [batch] int64, the token of each largest logit
    logits: Tensor,  # [batch, vocab] float32
    largest: Tensor,  # [batch] float32
    rows: Tensor,  # [n] int64, numbers of those that draw
    keys: Tensor,  # [n] int64
) -> None:
    """Does what `draw_` of `kernels/draw.py` does. No host waits for it."""
    n, vocab = len(rows), logits.shape[1]
    n_blocks = triton.cdiv(vocab, BLOCK)
    sums = torch.empty(n, n_blocks, dtype=torch.float64, device=logits.device)
    found = torch.empty(n, n_blocks, dtype=torch.int64, device=logits.device)
    draw_kernel[(n, n_blocks)](
        logits, logits.stride(0), vocab, largest, token_ids, rows, keys, sums, found,
        BLOCK=BLOCK, num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    token_ids[rows] = found.gather(1, sums.argmax(1, keepdim=True))[:, 0]
