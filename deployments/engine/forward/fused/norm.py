"""A model's RMSNorm in one operation, alone or with the sum behind it."""

from torch import Tensor

from deployments.engine.forward.module import Module
from deployments.engine.kernels import norms
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import is_cpu_bf16


class Norm:
    """The RMSNorm with `weight + plus`."""

    def __init__(self, norm: Module, plus: float = 0.0) -> None:
        self.weight: Tensor = norm.weight.detach()
        self.epsilon: float = getattr(norm, "variance_epsilon", None) or norm.eps
        self.plus = plus
        self._has_kernel = is_cpu_bf16(self.weight)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, dim] -> [tokens, dim]"""
        return self._compute(x, None)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """The sum of the norm of x and a residual, all [tokens, dim]."""
        return self._compute(x, residual)

    def _compute(self, x: Tensor, residual: Tensor | None) -> Tensor:
        if self._has_kernel:
            return layer_ops.rms_norm(x, self.weight, self.epsilon, self.plus, residual)
        if x.is_cuda:
            from deployments.engine.kernels.gpu.layer_ops import rms_norm

            return rms_norm(x, self.weight, self.epsilon, self.plus, residual)
        normed = norms.rms_norm(x, self.weight, self.epsilon, self.plus)
        return normed if residual is None else normed.add_(residual)
