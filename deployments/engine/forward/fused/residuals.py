"""How what a part of a layer computes joins the hidden states."""

from typing import Protocol

from torch import Tensor

from deployments.engine.forward.fused.norm import Norm
from deployments.engine.forward.linear import linear_add
from deployments.engine.forward.module import Module
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import is_cpu_bf16


class Residual(Protocol):
    """Both return the new hidden states [tokens, hidden], for which they may use the memory of the
    old ones."""

    def product(self, linear: Module, x: Tensor, hidden: Tensor) -> Tensor:
        """Joins the product of a linear layer and x [tokens, in]."""
        ...

    def value(self, value: Tensor, hidden: Tensor) -> Tensor:
        """Joins what was computed [tokens, hidden]."""
        ...


class PlainResidual:
    """The product is added, in its epilogue where it has one."""

    def product(self, linear: Module, x: Tensor, hidden: Tensor) -> Tensor:
        return linear_add(linear, x, hidden)

    def value(self, value: Tensor, hidden: Tensor) -> Tensor:
        return layer_ops.add(hidden, value, 1.0) if is_cpu_bf16(hidden) else hidden.add_(value)


class NoResidual:
    """Nothing is added."""

    def product(self, linear: Module, x: Tensor, hidden: Tensor) -> Tensor:
        value: Tensor = linear(x)
        return value

    def value(self, value: Tensor, hidden: Tensor) -> Tensor:
        return value


class ScaledResidual:
    """A factor times the product is added."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def product(self, linear: Module, x: Tensor, hidden: Tensor) -> Tensor:
        return self.value(linear(x), hidden)

    def value(self, value: Tensor, hidden: Tensor) -> Tensor:
        if is_cpu_bf16(hidden):
            return layer_ops.add(hidden, value, self._factor)
        return hidden.add_(value, alpha=self._factor)


class NormedResidual:
    """The norm of the product is added."""

    def __init__(self, norm: Norm) -> None:
        self._norm = norm

    def product(self, linear: Module, x: Tensor, hidden: Tensor) -> Tensor:
        return self.value(linear(x), hidden)

    def value(self, value: Tensor, hidden: Tensor) -> Tensor:
        return self._norm.add(value, hidden)


def residual(norm: Norm | None, factor: float) -> Residual:
    """The one with the norm behind a part of a layer, or with a factor of what is added."""
    if norm is not None:
        assert factor == 1, "no family has both"
        return NormedResidual(norm)
    return PlainResidual() if factor == 1 else ScaledResidual(factor)
