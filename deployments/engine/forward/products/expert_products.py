"""The products of experts that are called by what transformers has in their place."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


class QuantizedExperts(nn.Module, ABC):
    """Matrices of experts [outputs, inputs] behind each other."""

    @abstractmethod
    def multiply(self, x: Tensor, expert: int) -> Tensor:
        """The product of one expert's weights: [n, in] -> [n, out]."""


class GpuExperts(nn.Module, ABC):
    """The weights of a layer's experts on a GPU, and what they make of tokens.

    Nothing waits for the device: CUDA graphs can capture it at every size.
    """

    down_bias: Tensor | None  # [experts, hidden]

    def __init__(self, experts: Any, first_projection: str) -> None:
        """Takes the biases out of `experts`."""
        super().__init__()
        self.n_experts: int = experts.num_experts
        for own, name in (("first", first_projection), ("down", "down_proj")):
            bias = experts._parameters.pop(f"{name}_bias").data if experts.has_bias else None
            self.register_buffer(f"{own}_bias", bias)

    @abstractmethod
    def answers(self, x: Tensor, index: Tensor) -> Tensor:
        """Computes [tokens, hidden] -> [tokens * k, hidden], without the bias of the answers."""

    def forward(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]. `index`, int64, and `weights` are [tokens, k]. What
        is no number of an expert counts as none."""
        from deployments.engine.kernels.gpu.experts.product_ops import weighted_sum

        answers = self.answers(x, index)
        return weighted_sum(answers, self.down_bias, index, weights, self.n_experts)

    def add(self, x: Tensor, index: Tensor, weights: Tensor, other: Tensor) -> Tensor:
        """Returns its result and `other`, [tokens, hidden], in whose memory the sum may be."""
        from deployments.engine.kernels.gpu.experts.product_ops import weighted_sum

        answers, own = self.answers(x, index), other.contiguous()
        return weighted_sum(answers, self.down_bias, index, weights, self.n_experts, own)
