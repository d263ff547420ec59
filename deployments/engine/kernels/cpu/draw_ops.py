"""Launches the kernel of the draw."""

import torch
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import contiguous_rows
from deployments.engine.kernels.cpu.draw_kernels import draw_kernel


def draw_(
    token_ids: Tensor,  # [batch] int64
    logits: Tensor,  # [batch, vocab] float32
    largest: Tensor,  # [batch] float32, the largest logit of each row
    rows: Tensor,  # [n] int64, numbers of those that draw
    keys: Tensor,  # [n] int64, 64 random bits each
) -> None:
    """Replaces the token ids of these rows by the tokens whose logit and noise are the most
    together. A row whose largest logit is not finite gets any id."""
    assert logits.dtype is torch.float32
    logits, n = contiguous_rows(logits), len(rows)
    draw_kernel().call(
        n * logits.shape[1] if n > 1 else 0,
        logits=logits.data_ptr(),
        row_stride=logits.stride(0),
        vocab=logits.shape[1],
        largest=largest.contiguous().data_ptr(),
        rows=rows.data_ptr(),
        keys=keys.data_ptr(),
        n=n,
        token_ids=token_ids.data_ptr(),
    )
