"""RMSNorms in the form that all backends take."""

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor


class HeadNorm(Protocol):
    """An RMSNorm over the elements of each head, with `weight + plus`, before its rotary embedding
    or behind it."""

    weight: Tensor  # [head_dim]
    epsilon: float
    plus: float
    is_behind: bool


def norm(
    x: Tensor, weight: Tensor, epsilon: float, plus: float = 0.0, is_centered: bool = False
) -> Tensor:
    """The RMSNorm of x [..., width] with `weight + plus`, or the LayerNorm if it is centered, by
    torch."""
    if not is_centered:
        return rms_norm(x, weight, epsilon, plus)
    # transformers has it so, in float32.
    shift = x.float() - x.float().mean(-1, keepdim=True)
    return rms_norm(shift, weight.float(), epsilon, plus).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, plus: float = 0.0) -> Tensor:
    """The RMSNorm of x [..., width] with `weight + plus`, by torch."""
    if not plus:
        return F.rms_norm(x, weight.shape, weight, epsilon)
    # The sum has bits that a weight of fewer than 32 has no room for.
    return F.rms_norm(x.float(), weight.shape, weight.float() + plus, epsilon).to(x.dtype)
