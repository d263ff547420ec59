"""One layer of a fused model: attention and a gated feed-forward, each after an RMSNorm."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from deployments.engine.attention.interface import AttentionParams, FusedStepAttention
from deployments.engine.forward.families import Family, Module
from deployments.engine.forward.fusing import heads_of
from deployments.engine.forward.linear import GpuProduct, linear_add, silu_mul
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import is_cpu_bf16
from deployments.engine.kernels.rotary import RotaryEmbedding


class Norm:
    """A model's RMSNorm in one operation."""

    def __init__(self, norm: Module) -> None:
        self.weight: Tensor = norm.weight.detach()
        self.epsilon: float = norm.variance_epsilon
        self._has_kernel = is_cpu_bf16(self.weight)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, dim] -> [tokens, dim]"""
        if self._has_kernel:
            return layer_ops.rms_norm(x, self.weight, self.epsilon)
        if x.is_cuda:
            from deployments.engine.kernels.gpu.layer_ops import rms_norm

            return rms_norm(x, self.weight, self.epsilon)
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class FusedLayer:
    """A decoder layer of a fused model, with the weights of that model."""

    def __init__(self, layer: Module, family: Family) -> None:
        attention = layer.self_attn
        self._index: int = attention.layer_idx
        self._heads = heads_of(attention)
        self._head_dim: int = attention.head_dim
        self._params = AttentionParams(attention.scaling, family.window(attention))
        self._norms = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)
        self._head_norms: tuple[Norm, Norm] | None = None
        if (norms := family.head_norms(attention)) is not None:
            self._head_norms = Norm(norms[0]), Norm(norms[1])
        self._qkv, self._o = attention.qkv_proj, attention.o_proj
        self._swiglu, self._down = swiglu_of(layer.mlp), layer.mlp.down_proj

    def __call__(self, x: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]. `x` may be changed."""
        attention_norm, mlp_norm = self._norms
        x = linear_add(self._o, self._attend(attention_norm(x), rotary, step), x)
        return linear_add(self._down, self._swiglu(mlp_norm(x)), x)

    def _attend(self, x: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> Tensor:
        """[tokens, hidden] -> [tokens, heads * head_dim]"""
        heads, kv_heads = self._heads
        qkv: Tensor = self._qkv(x).view(len(x), heads + 2 * kv_heads, self._head_dim)
        out = step.attend_qkv(self._index, qkv, rotary, self._head_norms, self._params)
        return out.flatten(1)


def swiglu_of(mlp: Module) -> Callable[[Tensor], Tensor]:
    """The function `silu(gate(x)) * up(x)` of a gated feed-forward.

    It maps [tokens, hidden] to [tokens, intermediate].
    """
    if not hasattr(mlp, "gate_up_proj"):
        return partial(silu_mul, mlp.gate_proj, mlp.up_proj)

    gate_up = mlp.gate_up_proj
    if isinstance(gate_up, GpuProduct):
        return gate_up.gated

    def fused(x: Tensor) -> Tensor:
        return activate(gate_up(x))

    return fused


def activate(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up`: [tokens, 2 * intermediate] -> [tokens, intermediate]"""
    if gate_up.is_cuda:
        from deployments.engine.kernels.gpu.layer_ops import swiglu

        return swiglu(gate_up)
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)
