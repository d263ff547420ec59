"""One layer of a fused model: attention and a gated feed-forward, with RMSNorms."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from deployments.engine.attention.interface import AttentionParams, FusedStepAttention
from deployments.engine.forward.fused.families import Family
from deployments.engine.forward.fused.fusing import activation_of, heads_of
from deployments.engine.forward.fused.norm import Norm
from deployments.engine.forward.fused.residuals import Residual, residual
from deployments.engine.forward.linear import GpuProduct, gate_mul
from deployments.engine.forward.module import Module
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import is_cpu_bf16
from deployments.engine.kernels.rotary import Rotaries


class FusedLayer:
    """A decoder layer of a fused model, with the weights of that model."""

    def __init__(self, layer: Module, family: Family) -> None:
        attention = layer.self_attn
        self._index: int = attention.layer_idx
        self._heads = heads_of(attention)
        self._head_dim: int = attention.head_dim
        self._params = AttentionParams(
            attention.scaling, family.window(attention), family.softcap(attention)
        )
        self._rotary = family.rotary(attention)
        self._head_norms: tuple[Norm, Norm] | None = None
        if (found := family.head_norms(attention)) is not None:
            plus = family.norm_plus
            self._head_norms = Norm(found[0], plus), Norm(found[1], plus)
        norms = [
            None if name is None else Norm(getattr(layer, name), family.norm_plus)
            for name in family.norms
        ]
        self._norms = norms[0] or _unchanged, norms[2] or _unchanged
        factor = family.residual_factor(attention.config)
        self._residuals: tuple[Residual, Residual] = (
            residual(norms[1], factor),
            residual(norms[3], factor),
        )
        self._qkv, self._o = attention.qkv_proj, attention.o_proj
        self._gate, self._down = gate_of(layer.mlp), layer.mlp.down_proj

    def __call__(self, x: Tensor, rotaries: Rotaries, step: FusedStepAttention) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]. `x` may be changed."""
        attention_norm, mlp_norm = self._norms
        attention_residual, mlp_residual = self._residuals
        x = attention_residual.product(self._o, self._attend(attention_norm(x), rotaries, step), x)
        return mlp_residual.product(self._down, self._gate(mlp_norm(x)), x)

    def _attend(self, x: Tensor, rotaries: Rotaries, step: FusedStepAttention) -> Tensor:
        """[tokens, hidden] -> [tokens, heads * head_dim]"""
        heads, kv_heads = self._heads
        qkv: Tensor = self._qkv(x).view(len(x), heads + 2 * kv_heads, self._head_dim)
        rotary = rotaries[self._rotary]
        out = step.attend_qkv(self._index, qkv, rotary, self._head_norms, self._params)
        return out.flatten(1)


def _unchanged(x: Tensor) -> Tensor:
    return x


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
