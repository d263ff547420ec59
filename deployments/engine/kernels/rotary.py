"""Rotary embedding as kernels take it, on either device."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class RotaryEmbedding(NamedTuple):
    """A rotary embedding as `x * cos + x.roll(half) * sin`."""

    cos: Tensor  # [tokens, 1, head_dim]
    sin: Tensor  # the same, negative where the second half is turned into the first

    def apply_(self, x: Tensor) -> Tensor:
        """[tokens, heads, head_dim], in place."""
        turned = x.roll(x.shape[-1] // 2, -1)
        return x.mul_(self.cos).addcmul_(turned, self.sin)


def rotary_embedding(cos: Tensor, sin: Tensor) -> RotaryEmbedding:
    """From what a model's rotary module gives for positions [1, tokens]."""
    half = sin.shape[-1] // 2
    signed = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)
    return RotaryEmbedding(cos[0, :, None].contiguous(), signed[:, None])


class HeadNorm(Protocol):
    weight: Tensor  # [dim]
    epsilon: float
