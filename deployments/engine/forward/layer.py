"""One layer of a fused model: attention and a gated feed-forward, each behind an RMSNorm."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from deployments.engine.attention.interface import AttentionParams, FusedStepAttention
from deployments.engine.forward.fusing import Module
from deployments.engine.forward.linear import linear_add, silu_mul
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
        if self._has_kernel:
            return layer_ops.rms_norm(x, self.weight, self.epsilon)
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class FusedLayer:
    def __init__(self, layer: Module, window: int | None) -> None:
        attention, config = layer.self_attn, layer.self_attn.config
        self._index: int = attention.layer_idx
        self._heads: tuple[int, int] = (config.num_attention_heads, config.num_key_value_heads)
        self._head_dim: int = attention.head_dim
        self._params = AttentionParams(attention.scaling, window)
        self._norms = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)
        self._head_norms: tuple[Norm, Norm] | None = None
        if hasattr(attention, "q_norm"):
            self._head_norms = Norm(attention.q_norm), Norm(attention.k_norm)
        self._qkv, self._o = attention.qkv_proj, attention.o_proj
        self._gated, self._down = gated_by(layer.mlp), layer.mlp.down_proj

    def __call__(self, x: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> Tensor:
        """[tokens, hidden]; `x` may be changed."""
        before_attention, before_mlp = self._norms
        x = linear_add(self._o, self._attended(before_attention(x), rotary, step), x)
        return linear_add(self._down, self._gated(before_mlp(x)), x)

    def _attended(self, x: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> Tensor:
        """[tokens, heads * head_dim]"""
        n, n_kv = self._heads
        qkv: Tensor = self._qkv(x).view(len(x), n + 2 * n_kv, self._head_dim)
        out = step.attend_qkv(self._index, qkv, rotary, self._head_norms, self._params)
        return out.flatten(1)


def gated_by(mlp: Module) -> Callable[[Tensor], Tensor]:
    """What a gated feed-forward computes before its last matrix."""
    if not hasattr(mlp, "gate_up_proj"):
        return partial(silu_mul, mlp.gate_proj, mlp.up_proj)

    def joined(x: Tensor) -> Tensor:
        both: Tensor = mlp.gate_up_proj(x)
        if both.is_cuda:
            from deployments.engine.kernels.gpu.layer_ops import swiglu

            return swiglu(both)
        gate, up = both.chunk(2, -1)
        return F.silu(gate).mul_(up)

    return joined
