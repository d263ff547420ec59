"""The RMSNorms of draft heads."""

import torch
from torch import Tensor, nn

from deployments.engine.forward.fused.norm import Norm


class DraftNorm(nn.Module):
    """The RMSNorm with `weight + plus`."""

    def __init__(self, size: int, epsilon: float, plus: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon, self._plus = epsilon, plus

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, size] -> [tokens, size]"""
        return Norm(self, self._plus)(x)
