"""Experts on a CPU whose weights are packed for one kernel, which computes all of a layer's."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from deployments.engine.forward.products.expert_activation import expert_activation
from deployments.engine.kernels.cpu.experts import expert_ops
from deployments.engine.kernels.cpu.experts.expert_kernels import experts_kernel
from deployments.engine.kernels.cpu.experts.expert_matrices import ExpertMatrices
from deployments.engine.kernels.cpu.features import has_matmul_kernels, is_cpu_bf16
from deployments.engine.kernels.cpu.pack_format import QuantizedFormat, format_of
from deployments.engine.kernels.cpu.packed_weight import PackedWeight, pack, pack_rows
from deployments.engine.kernels.experts import ExpertActivation
from deployments.engine.quantized.stored_weight import StoredWeight
from deployments.engine.threads import usable_threads

NAME = "routed"  # of the module that stands in the place of experts' weights


class RoutedExperts(nn.Module):
    """The weights of experts, and what they make of tokens.

    A token's result has the same bits with any others, and with any number of threads.
    """

    def __init__(
        self, first: ExpertMatrices, down: ExpertMatrices, activation: ExpertActivation
    ) -> None:
        super().__init__()
        self._first, self._down = first, down
        self._activation = activation
        experts_kernel()  # compiled before a step is recorded
        for name, matrices in (("first", first), ("down", down)):
            self.register_buffer(f"{name}_weights", matrices.weights)
            self.register_buffer(f"{name}_bias", matrices.bias)

    def forward(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]. `index`, int64, and `weights` are [tokens, k]. What
        is no number of an expert counts as none."""
        weights = weights if is_cpu_bf16(weights) else weights.float()
        x = x.to(torch.bfloat16)
        return expert_ops.routed(x, index, weights, self._first, self._down, self._activation)


def routed_experts(experts: nn.Module) -> nn.Module | None:
    """Returns what computes all experts of a layer by our kernels, as `RoutedExperts` do; None:
    nothing does."""
    return experts._modules.get(NAME)


def first_projection(experts: Any) -> str:
    return "gate_up_proj" if experts.has_gate else "up_proj"


def packable_activation(experts: Any) -> ExpertActivation | None:
    """Says what is computed between the products of experts that `pack_experts` can pack. None: it
    can't."""
    if not has_matmul_kernels() or experts.has_post_expert_norm:
        return None
    names = first_projection(experts), "down_proj"
    if not all(_is_packable(experts, name) for name in names):
        return None
    return expert_activation(experts)


def pack_experts(
    experts: Any, activation: ExpertActivation, on_packed: Callable[[Tensor], None]
) -> None:
    """Packs the weights of experts for our kernel, in place. The memory of a weight is given back
    before the next one is packed. `on_packed` is called with each weight that has been."""
    first = _packed(experts, first_projection(experts), 2 if experts.has_gate else 1, on_packed)
    down = _packed(experts, "down_proj", 1, on_packed)
    experts.add_module(NAME, RoutedExperts(first, down, activation))


def _is_packable(experts: Any, name: str) -> bool:
    weight = experts._parameters.get(name)
    if weight is None or weight.dim() != 3 or not is_cpu_bf16(weight) or not weight.numel():
        return False
    own = outputs_first(experts, weight)
    if not isinstance(own, StoredWeight):
        return type(own) is Tensor
    return len(own.layouts) == 1 and not own.is_ordered and _format_of(own) is not None


def outputs_first(experts: Any, weight: nn.Parameter) -> Tensor:
    """Returns the weight as [experts, outputs, inputs]."""
    return weight.data.mT if experts.is_transposed else weight.data


def _format_of(weight: Tensor) -> QuantizedFormat | None:
    """None: its numbers are bfloat16, or our kernels can't compute with its layout. That of a share
    of inputs is not that of its matrices."""
    if not isinstance(weight, StoredWeight):
        return None
    return format_of(weight.matrix(0).read(0, 1).layout)


def _packed(
    experts: Any, name: str, n_parts: int, on_packed: Callable[[Tensor], None]
) -> ExpertMatrices:
    """Packs a weight and its bias, which the experts then have no more."""
    given = experts._parameters.pop(name)
    weight = outputs_first(experts, given)
    parts = _parts(weight, n_parts, experts.is_concatenated)
    bias = None
    if experts.has_bias:
        biases = experts._parameters.pop(f"{name}_bias").data
        bias = torch.stack(_parts(biases, n_parts, experts.is_concatenated), 1).to(torch.bfloat16)
        on_packed(biases)
    n_experts, (n_out, n_in) = len(weight), parts[0].shape[1:]
    matrices = ExpertMatrices((n_experts, n_parts, n_out, n_in), _format_of(weight), bias)
    for expert in range(n_experts):
        for number, part in enumerate(parts):
            matrices.fill(expert, number, _pack(part[expert]))
    on_packed(given.data)
    return matrices


def _pack(rows: Tensor) -> PackedWeight:
    """A matrix [outputs, inputs] of a weight that `_is_packable`."""
    if not isinstance(rows, StoredWeight):
        return pack(rows)
    n_out, n_in = rows.shape
    packed = pack_rows(rows, rows.read(0, 1).layout, n_out, n_in, usable_threads())
    assert packed is not None
    return packed


def _parts(x: Tensor, n: int, is_concatenated: bool) -> list[Tensor]:
    """The outputs of x [experts, outputs, ...] that go to each of the first products."""
    if not is_concatenated:
        return [x[:, nth::n] for nth in range(n)]
    size = x.shape[1] // n
    return [x[:, nth * size : (nth + 1) * size] for nth in range(n)]
