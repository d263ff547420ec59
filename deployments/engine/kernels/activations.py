"""The activations of gated feed-forwards, by the numbers that kernels know them by."""

from enum import IntEnum

import torch.nn.functional as F
from torch import Tensor


class GateActivation(IntEnum):
    SILU = 1
    GELU_TANH = 2  # by the approximation with a hyperbolic tangent

    def __call__(self, x: Tensor) -> Tensor:
        return F.silu(x) if self is GateActivation.SILU else F.gelu(x, approximate="tanh")
