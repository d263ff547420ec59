"""Launches the kernel of top-p."""

import triton
from torch import Tensor

from deployments.engine.kernels.gpu.top_p_kernels import top_p_kernel

BLOCK = 4096  # logits that a program looks at together


def top_p_(
    logits: Tensor,  # [rows, vocab] float32, contiguous; what is banned becomes -inf
    top_p: Tensor,  # [rows, 1] float32
    min_keep: Tensor,  # [rows, 1] float32, 1 at least
) -> None:
    rows, vocab = logits.shape
    top_p_kernel[(rows,)](
        logits, top_p, min_keep, vocab, BLOCK=min(BLOCK, triton.next_power_of_2(vocab)),
        num_warps=16, enable_fp_fusion=True,
    )  # fmt: skip
