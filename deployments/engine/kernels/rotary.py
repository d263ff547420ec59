"""The rotary embedding in the form that all backends take."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class RotaryEmbedding(NamedTuple):
    """A rotary embedding, applied as `x * cos + x.roll(head_dim / 2) * sin`."""

    cos: Tensor  # [tokens, 1, head_dim]
    sin: Tensor  # [tokens, 1, head_dim], negative in the first half

    def apply_(self, x: Tensor) -> Tensor:
        """Rotates x [tokens, heads, head_dim] in place."""
        rotated = x.roll(x.shape[-1] // 2, -1)
        return x.mul_(self.cos).addcmul_(rotated, self.sin)


def rotary_embedding(cos: Tensor, sin: Tensor) -> RotaryEmbedding:
    """The rotary embedding of `cos` and `sin` [1, tokens, head_dim] of a model's rotary module."""
    half = sin.shape[-1] // 2
    signed = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)
    return RotaryEmbedding(cos[0, :, None].contiguous(), signed[:, None])


class HeadNorm(Protocol):
    """An RMSNorm over the elements of each head."""

    weight: Tensor  # [head_dim]
    epsilon: float
