"""A model's RMSNorm or LayerNorm in one operation, alone or with the sum behind it."""

from torch import Tensor

from deployments.engine.forward.module import Module
from deployments.engine.kernels import norms
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import is_cpu_bf16


class Norm:
    """The RMSNorm with `weight + plus`, or the LayerNorm without a bias if it is centered.

    is_behind: that of a head follows its rotary embedding.
    """

    def __init__(
        self,
        norm: Module,
        plus: float = 0.0,
        is_centered: bool = False,
        is_behind: bool = False,
    ) -> None:
        self.weight: Tensor = norm.weight.detach()
        self.epsilon: float = getattr(norm, "variance_epsilon", None) or norm.eps
        self.plus, self._is_centered, self.is_behind = plus, is_centered, is_behind
        self._has_kernel = is_cpu_bf16(self.weight)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, dim] -> [tokens, dim]"""
        return self._compute(x, None)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """The sum of the norm of x and a residual, all [tokens, dim]."""
        return self._compute(x, residual)

    def _compute(self, x: Tensor, residual: Tensor | None) -> Tensor:
        own = self.weight, self.epsilon, self.plus
        if self._has_kernel:
            return layer_ops.norm(x, *own, residual, self._is_centered)
        if x.is_cuda:
            from deployments.engine.kernels.gpu.layer_ops import norm

            return norm(x, *own, residual, self._is_centered)
        normed = norms.norm(x, *own, self._is_centered)
        return normed if residual is None else normed.add_(residual)


class WideNorm:
    """The RMSNorm of all heads of queries or keys together, in place."""

    def __init__(self, norm: Module, plus: float = 0.0) -> None:
        self.width = norm.weight.shape[0]
        self._norm = Norm(norm, plus)

    def apply_(self, x: Tensor) -> None:
        """x: [tokens, width], of which the numbers of a token lie side by side"""
        own = self._norm.weight, self._norm.epsilon, self._norm.plus
        if is_cpu_bf16(x):
            layer_ops.rms_norm_(x, *own)
        elif x.is_cuda:
            from deployments.engine.kernels.gpu.layer_ops import rms_norm_

            rms_norm_(x, *own)
        else:
            x.copy_(norms.rms_norm(x, *own))
