"""Experts on a GPU whose weights are plain numbers, by kernels that compute all of a layer's."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from deployments.engine.forward.products.expert_activation import expert_activation
from deployments.engine.forward.products.expert_products import GpuExperts
from deployments.engine.forward.products.routed_experts import (
    NAME,
    first_projection,
    outputs_first,
)
from deployments.engine.kernels.experts import ExpertActivation

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class PlainExperts(GpuExperts):
    """Experts whose weights are plain numbers. In float32 a token's result has the same bits with
    any others."""

    first_weight: Tensor
    first_bias: Tensor | None
    down_weight: Tensor

    def __init__(self, experts: Any, activation: ExpertActivation) -> None:
        """Takes the weights out of `experts`."""
        name = first_projection(experts)
        super().__init__(experts, name)
        self._activation = activation
        self._n_parts = 2 if experts.has_gate else 1
        self._is_interleaved = experts.has_gate and not experts.is_concatenated
        for own, weight in (("first", name), ("down", "down_proj")):
            taken = outputs_first(experts, experts._parameters.pop(weight)).contiguous()
            self.register_buffer(f"{own}_weight", taken)

    def answers(self, x: Tensor, index: Tensor) -> Tensor:
        from deployments.engine.kernels.gpu.experts.product_ops import (
            Matrices,
            MatrixShape,
            answers,
        )

        (_, hidden, width), n = self.down_weight.shape, self._n_parts
        shape = MatrixShape(width, hidden, n, self._is_interleaved)
        first = Matrices(self.first_weight, self.first_bias, shape)
        down = Matrices(self.down_weight, None, MatrixShape(hidden, width))
        return answers(x.to(first.weight.dtype), index, first, down, self._activation)


def known_activation(experts: Any) -> ExpertActivation | None:
    """Says what is computed between the products of experts that `take_experts` can take. None: it
    can't."""
    if experts.has_post_expert_norm:
        return None
    names = first_projection(experts), "down_proj"
    if not all(_is_plain(experts._parameters.get(name)) for name in names):
        return None
    return expert_activation(experts)


def take_experts(
    experts: Any, activation: ExpertActivation, on_taken: Callable[[Tensor], None]
) -> None:
    """Has the weights of experts multiplied by our kernels, in place. `on_taken` is called with
    each weight."""
    taken = [weight.data for weight in experts.parameters(recurse=False)]
    experts.add_module(NAME, PlainExperts(experts, activation))
    for weight in taken:
        on_taken(weight)


def _is_plain(weight: nn.Parameter | None) -> bool:
    if weight is None or weight.dim() != 3 or not weight.numel():
        return False
    return type(weight.data) is Tensor and weight.dtype in DTYPES
