"""The feed-forwards of a fused layer: a gated one, and one of experts."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from deployments.engine.forward.fused.fusing import activation_of, gated_mlps
from deployments.engine.forward.fused.residuals import NoResidual, PlainResidual, Residual
from deployments.engine.forward.linear import GpuProduct, gate_mul
from deployments.engine.forward.module import Module
from deployments.engine.forward.products.expert_products import GpuExperts
from deployments.engine.forward.products.routed_experts import routed_experts
from deployments.engine.forward.products.router import CORRECTION, ExpertRouter
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import is_cpu_bf16


class GatedMlp:
    """`down(activation(gate(x)) * up(x))`, of x [tokens, hidden], joined with the hidden states, in
    whose memory the result may be."""

    def __init__(self, mlp: Module, residual: Residual) -> None:
        self.gate, self.down, self.residual = gate_of(mlp), mlp.down_proj, residual

    def __call__(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self.residual.product(self.down, self.gate(x), hidden)


class SparseMlp:
    """Experts that a router chooses for each token, and perhaps one that all tokens share."""

    def __init__(self, mlp: Module, residual: Residual, scales_inputs: bool = False) -> None:
        """`scales_inputs` is as of families."""
        beside = mlp._buffers.get(CORRECTION)
        router = mlp.gate if hasattr(mlp, "gate") else mlp.router
        self._router = ExpertRouter(router, *(() if beside is None else (beside,)))
        self._experts, self._residual = mlp.experts, residual
        self._scales_inputs = scales_inputs
        self._adding = _adding(mlp.experts, residual)
        self._shared_gate: Module | None = mlp._modules.get("shared_expert_gate")
        shared = [own for _, own in gated_mlps(mlp)]
        of_shared: Residual = PlainResidual() if self._shared_gate is None else NoResidual()
        self.shared = GatedMlp(shared[0], of_shared) if shared else None

    def __call__(self, x: Tensor, hidden: Tensor) -> Tensor:
        index, weights = self._router(x)
        if self._scales_inputs:
            read, index, weights = _scaled_inputs(x, index, weights)
            value = self._experts(read, index, weights).view(len(x), -1, x.shape[1]).sum(1)
            return self._residual.value(self._with_shared(x, value.to(x.dtype)), hidden)
        if self._adding is not None:
            return self._with_shared(x, self._adding.add(x, index, weights, hidden))
        value = self._experts(x, index, weights).to(x.dtype)
        return self._residual.value(self._with_shared(x, value), hidden)

    def _with_shared(self, x: Tensor, value: Tensor) -> Tensor:
        """Adds what all tokens share, if there is something."""
        if self.shared is None:
            return value
        if self._shared_gate is None:
            return self.shared(x, value)
        return _add_gated(value, self.shared(x, value), self._shared_gate(x))


def _adding(experts: Module, residual: Residual) -> GpuExperts | None:
    """Experts that can add to the hidden states themselves; None: they can't. Hooks on them, which
    sum up what ranks have, want the result by itself."""
    own = routed_experts(experts)
    has_hooks = experts._forward_hooks or experts._forward_pre_hooks
    is_plain = isinstance(residual, PlainResidual) and not has_hooks
    return own if is_plain and isinstance(own, GpuExperts) else None


def _add_gated(x: Tensor, y: Tensor, gates: Tensor) -> Tensor:
    """`x + sigmoid(gates) * y`. x, y: [tokens, hidden], gates: [tokens, 1]"""
    return layer_ops.add_gated(x, y, gates) if is_cpu_bf16(x) else x.addcmul_(y, gates.sigmoid())


def _scaled_inputs(x: Tensor, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Multiplies x [tokens, hidden] by each of the weights [tokens, k], for experts to read.

    Returns [tokens * k, hidden], and of each the index and a weight of 1.
    """
    read = (x[:, None] * weights[..., None].to(x.dtype)).flatten(0, 1)
    return read, index.reshape(-1, 1), torch.ones_like(weights).view(-1, 1)


def feed_forward(
    mlp: Module, residual: Residual, scales_inputs: bool = False
) -> "GatedMlp | SparseMlp":
    """The feed-forward of a layer. `scales_inputs` is as of families."""
    if hasattr(mlp, "experts"):
        return SparseMlp(mlp, residual, scales_inputs)
    return GatedMlp(mlp, residual)


def gate_of(mlp: Module) -> Callable[[Tensor], Tensor]:
    """The function `activation(gate(x)) * up(x)` of a gated feed-forward.

    It maps [tokens, hidden] to [tokens, intermediate].
    """
    activation = activation_of(mlp)
    assert activation is not None, "it is not fused"
    if not hasattr(mlp, "gate_up_proj"):
        return partial(gate_mul, activation, mlp.gate_proj, mlp.up_proj)
    gate_up = mlp.gate_up_proj
    if isinstance(gate_up, GpuProduct):
        return partial(gate_up.gated, activation)

    def fused(x: Tensor) -> Tensor:
        return activate(gate_up(x), activation)

    return fused


def activate(gate_up: Tensor, activation: GateActivation) -> Tensor:
    """`activation(gate) * up`: [tokens, 2 * intermediate] -> [tokens, intermediate]"""
    if gate_up.is_cuda:
        from deployments.engine.kernels.gpu.layer_ops import gated

        return gated(gate_up, activation)
    if is_cpu_bf16(gate_up):
        return layer_ops.gated(gate_up, activation)
    gate, up = gate_up.chunk(2, -1)
    return activation(gate).mul_(up)
