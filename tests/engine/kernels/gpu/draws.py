"""Draws by the GPU's kernel beside those by numpy, on whatever device."""

import torch
from torch import Tensor

from tests.engine.kernels.noise import batches, drawn, random_keys, sums


def wrong_draws(vocab: int, device: str = "cpu") -> int:
    """How many rows get another token than that of the greatest sum, in batches in which all rows
    draw, and in which some are greedy."""
    n = 0
    for logits, keys in batches(vocab):
        for rows in (torch.arange(len(logits)), torch.tensor([4, 0, 2])):
            expected = logits.argmax(1)
            expected[rows] = torch.tensor(drawn(logits[rows], keys[: len(rows)]))
            n += int((expected != _drawn(logits, rows, keys, device)).sum())
    return n


def _drawn(logits: Tensor, rows: Tensor, keys: Tensor, device: str) -> Tensor:
    from deployments.engine.kernels.gpu.draw_ops import draw_

    on_device = logits.to(device)
    largest, token_ids = on_device.max(1)
    draw_(token_ids, on_device, largest, rows.to(device), keys[: len(rows)].to(device))
    return token_ids.cpu()


def wrong_sums(rows: int, device: str = "cpu") -> int:
    """How many of the greatest sums of rows of one token, which are its noise, differ in a bit."""
    from deployments.engine.kernels.gpu.draw_kernels import draw_kernel

    keys, zeros = random_keys(rows), torch.zeros(rows, 1, device=device)
    found, ids = zeros.double(), zeros.long()
    draw_kernel[(rows, 1)](
        zeros, 1, 1, zeros, ids, torch.arange(rows, device=device), keys.to(device), found, ids,
        BLOCK=16, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return int((found.cpu() != torch.from_numpy(sums(zeros.cpu(), keys))).sum())
