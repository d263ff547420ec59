"""Experts whose quantized weights are multiplied on a GPU, all that tokens chose in one launch."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.forward.products.expert_activation import expert_activation
from deployments.engine.forward.products.expert_products import GpuExperts, QuantizedExperts
from deployments.engine.forward.products.routed_experts import NAME, first_projection
from deployments.engine.forward.products.slab_matrix import SlabMatrix
from deployments.engine.kernels.gpu import quantized_ops
from deployments.engine.kernels.gpu.experts import product_ops
from deployments.engine.kernels.gpu.experts.grouping_ops import (
    ChosenExperts,
    chosen_experts,
    tokens_of_blocks,
)
from deployments.engine.kernels.gpu.experts.product_ops import MatrixShape
from deployments.engine.quantized.input_share import ordered


class SlabExperts(QuantizedExperts):
    """Matrices of experts behind each other, in parts that have one layout each.

    A token's result has the same bits with any others, up to MAX_TOKENS together: behind that the
    inputs are not split.
    """

    def __init__(self, parts: Sequence[SlabMatrix], n_experts: int) -> None:
        """Each part [experts * outputs, inputs] has some outputs of all experts."""
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.n_experts = n_experts

    @property
    def n_outputs(self) -> int:
        return sum(part.n_rows for part in self._matrices) // self.n_experts

    def multiply_all(self, x: Tensor, chosen: ChosenExperts) -> Tensor:
        """Computes the products of all tokens and their experts: [tokens * k, out].

        x: [tokens, in], or [tokens * k, in]. The products of no expert may be anything.
        """
        n_tokens = len(chosen.places) // chosen.of_a_token
        is_split = n_tokens <= quantized_ops.MAX_TOKENS
        return self._joined(
            quantized_ops.experts_product(x, part.slabs, self.n_experts, chosen, is_split=is_split)
            for part in self._matrices
        )

    def multiply(self, x: Tensor, expert: int) -> Tensor:
        return self._joined(self._multiply(part, x, expert) for part in self._matrices)

    def _multiply(self, part: SlabMatrix, x: Tensor, expert: int) -> Tensor:
        n, slabs = part.n_rows // self.n_experts, part.slabs
        x = ordered(x, None if slabs.order is None else slabs.order[expert])
        return F.linear(x, quantized_ops.dequantize(slabs, x.dtype, first=expert * n, n=n))

    def _joined(self, parts: Iterable[Tensor]) -> Tensor:
        found = [*parts]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    @property
    def _matrices(self) -> list[SlabMatrix]:
        return [cast(SlabMatrix, part) for part in self.parts]


class RoutedSlabs(GpuExperts):
    """Experts whose weights are quantized."""

    first_bias: Tensor | None
    normed_bias: Tensor | None  # of answers that a norm follows

    def __init__(self, experts: Any) -> None:
        """Takes the products out of `experts`."""
        name = first_projection(experts)
        super().__init__(experts, name)
        self.first = cast(SlabExperts, experts._modules.pop(name))
        self.down = cast(SlabExperts, experts._modules.pop("down_proj"))
        n_parts = 2 if experts.has_gate else 1
        is_interleaved = experts.has_gate and not experts.is_concatenated
        width = self.first.n_outputs // n_parts
        self._shape = MatrixShape(width, 0, n_parts, is_interleaved)
        self._activation = expert_activation(experts)
        self._unknown: Callable[[Tensor], Tensor] = (
            experts._apply_gate if experts.has_gate else experts.act_fn
        )
        self._norm = experts.post_expert_norm if experts.has_post_expert_norm else None
        self.register_buffer("normed_bias", None if self._norm is None else self.down_bias)
        if self._norm is not None:
            self.down_bias = None

    def answers(self, x: Tensor, index: Tensor) -> Tensor:
        n = self.n_experts
        tokens = tokens_of_blocks(index.numel(), n, quantized_ops.TOKENS)
        chosen = chosen_experts(index, n, tokens)
        y = self.first.multiply_all(x, chosen)
        if self._activation is not None:
            shape, activation = self._shape, self._activation
            y = product_ops.activated(y, self.first_bias, index, n, shape, activation)
        else:
            y = self._unknown(_biased(y, self.first_bias, index))
        y = self.down.multiply_all(y, chosen)
        if self._norm is not None:
            y = self._norm(_biased(y, self.normed_bias, index))
        return y


def take_slabs(experts: Any) -> None:
    """Has the products of experts computed together, in place, where both are of slabs."""
    products = (experts._modules.get(name) for name in (first_projection(experts), "down_proj"))
    if all(isinstance(each, SlabExperts) for each in products):
        experts.add_module(NAME, RoutedSlabs(experts))


def _biased(x: Tensor, bias: Tensor | None, index: Tensor) -> Tensor:
    """Adds the experts' bias to x [places, ...]."""
    return x if bias is None else x + bias[index.flatten().clamp(0, len(bias) - 1)]
