"""The draw of tokens by Gumbel noise, by the CPU's kernel or the GPU's."""

import numpy as np
import torch
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import contiguous_rows
from deployments.engine.kernels.cpu.draw_kernels import draw_kernel

MIN_PART = 1 << 14  # tokens: for fewer it does not pay to wake another thread


def draw_(
    token_ids: Tensor,  # [batch] int64; on a GPU the token of each largest logit
    logits: Tensor,  # [batch, vocab] float32
    largest: Tensor,  # [batch] float32, the largest logit of each row
    rows: Tensor,  # [n] int64, numbers of those that draw
    keys: Tensor,  # [n] int64, 64 random bits each
) -> None:
    """Replaces the token ids of these rows by the tokens whose logit and noise are the most
    together. A row whose largest logit is not finite gets any id."""
    if logits.is_cuda:
        from deployments.engine.kernels.gpu import draw_ops

        draw_ops.draw_(token_ids, logits, largest, rows, keys)
        return
    assert logits.dtype is torch.float32
    logits, largest = contiguous_rows(logits), largest.contiguous()
    n, vocab = len(rows), logits.shape[1]
    n_parts = max(min(torch.get_num_threads() // n, vocab // MIN_PART), 1)
    sums, found = np.empty((n, n_parts)), np.empty((n, n_parts), dtype=np.int64)
    draw_kernel().call(
        n * vocab if n * n_parts > 1 else 0,
        logits=logits.data_ptr(),
        row_stride=logits.stride(0),
        vocab=vocab,
        largest=largest.data_ptr(),
        rows=rows.data_ptr(),
        keys=keys.data_ptr(),
        n=n,
        n_parts=n_parts,
        sums=sums.ctypes.data,
        token_ids=found.ctypes.data,
    )
    token_ids.numpy()[rows.numpy()] = found[np.arange(n), sums.argmax(1)]
