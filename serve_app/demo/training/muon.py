"""Muon (Jordan 2024): momentum, of which the update takes the directions and not their sizes."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

# A quintic that brings all singular values near one in few steps, from Jordan's article.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
EPS = 1e-7


class Muon(Optimizer):
    """Muon for matrices. torch's own always computes in bfloat16, which most CPUs are slow at.

    The matrices of a group have to be of one shape: they are computed together.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, weight_decay: float, dtype: torch.dtype
    ) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "momentum": 0.95})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            update = orthogonal(torch.stack([self._mean(weight, group) for weight in weights]))
            rows, columns = weights[0].shape
            size = group["lr"] * max(1.0, rows / columns) ** 0.5
            for weight, change in zip(weights, update, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(change, alpha=-size)

    def _mean(self, weight: Tensor, group: dict[str, Any]) -> Tensor:
        gradient, state = cast(Tensor, weight.grad), self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(gradient)
        mean = state["momentum"].lerp_(gradient, 1 - group["momentum"])
        return gradient.lerp(mean, group["momentum"]).to(self.dtype)


def orthogonal(matrices: Tensor) -> Tensor:
    """[count, rows, columns]: the nearest with singular values of about one."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT
    x: Tensor = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=EPS)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x
