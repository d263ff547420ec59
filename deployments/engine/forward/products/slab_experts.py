"""Experts whose quantized weights are multiplied on a GPU, all that tokens chose in one launch."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.forward.products.expert_products import GroupedExperts
from deployments.engine.forward.products.slab_matrix import SlabMatrix
from deployments.engine.kernels.gpu import expert_ops, quantized_ops
from deployments.engine.kernels.gpu.expert_ops import ChosenExperts
from deployments.engine.quantized.input_share import ordered


class SlabExperts(GroupedExperts):
    """Matrices of experts behind each other, in parts that have one layout each.

    A token's result has the same bits with any others, up to MAX_TOKENS together: behind that the
    inputs are not split.
    """

    def __init__(self, parts: Sequence[SlabMatrix], n_experts: int) -> None:
        """Each part [experts * outputs, inputs] has some outputs of all experts."""
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self._n_experts = n_experts

    def choose(self, index: Tensor) -> ChosenExperts:
        return expert_ops.chosen_experts(index, self._n_experts)

    def multiply_all(self, x: Tensor, chosen: ChosenExperts) -> Tensor:
        n_tokens = len(chosen.places) // chosen.of_a_token
        is_split = n_tokens <= quantized_ops.MAX_TOKENS
        return self._joined(
            quantized_ops.experts_product(x, part.slabs, self._n_experts, chosen, is_split=is_split)
            for part in self._matrices
        )

    def multiply(self, x: Tensor, expert: int) -> Tensor:
        return self._joined(self._multiply(part, x, expert) for part in self._matrices)

    def _multiply(self, part: SlabMatrix, x: Tensor, expert: int) -> Tensor:
        n, slabs = part.n_rows // self._n_experts, part.slabs
        x = ordered(x, None if slabs.order is None else slabs.order[expert])
        return F.linear(x, quantized_ops.dequantize(slabs, x.dtype, first=expert * n, n=n))

    def _joined(self, parts: Iterable[Tensor]) -> Tensor:
        found = [*parts]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    @property
    def _matrices(self) -> list[SlabMatrix]:
        return [cast(SlabMatrix, part) for part in self.parts]
