"""RMSNorms in the form that all backends take."""

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor


class HeadNorm(Protocol):
    """An RMSNorm over the elements of each head, with `weight + plus`."""

    weight: Tensor  # [head_dim]
    epsilon: float
    plus: float


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, plus: float = 0.0) -> Tensor:
    """The RMSNorm of x [..., width] with `weight + plus`, by torch."""
    if not plus:
        return F.rms_norm(x, weight.shape, weight, epsilon)
    # The sum has bits that a weight of fewer than 32 has no room for.
    return F.rms_norm(x.float(), weight.shape, weight.float() + plus, epsilon).to(x.dtype)
