"""Linear layers side by side, which have the same inputs, as a single one."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deployments.engine.forward.linear import GpuProduct
from deployments.engine.forward.module import Module


class JoinedLinear(nn.Module):
    """The outputs of several linear layers behind each other. Their weights differ in form."""

    def __init__(self, parts: Sequence[Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.in_features: int = parts[0].in_features
        self.out_features: int = sum(part.out_features for part in parts)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        products = [part for part in self.parts if isinstance(part, GpuProduct)]
        if len(products) < len(self.parts):
            return torch.cat([part(x) for part in self.parts], -1)
        y = x.new_empty(*x.shape[:-1], self.out_features)
        rows, at = x.reshape(-1, self.in_features), 0
        for part in products:
            end = at + part.out_features
            part.write(rows, y.view(-1, self.out_features)[:, at:end])
            at = end
        return y
