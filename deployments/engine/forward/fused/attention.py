"""The attention of a fused layer, and what may stand in its place."""

import torch
from torch import Tensor

from deployments.engine.attention.interface import AttentionParams, FusedStepAttention
from deployments.engine.forward.fused.family import Family
from deployments.engine.forward.fused.fusing import heads_of
from deployments.engine.forward.fused.norm import Norm, WideNorm
from deployments.engine.forward.fused.residuals import Residual
from deployments.engine.forward.module import Module
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.dispatch import empty
from deployments.engine.kernels.cpu.features import is_cpu_bf16
from deployments.engine.kernels.rotary import Rotaries


class SelfAttention:
    """Queries, keys and values are one product, and the last product joins the hidden states."""

    def __init__(self, attention: Module, family: Family, residual: Residual) -> None:
        self._index: int = attention.layer_idx
        self._heads = heads_of(attention)
        self._head_dim: int = attention.head_dim
        self._params = AttentionParams(
            attention.scaling,
            None if family.has_tumbling_windows else family.window(attention),
            family.softcap(attention),
            family.sinks(attention),
        )
        self._rotary = family.rotary(attention)
        self._head_norms: tuple[Norm, Norm] | None = None
        self._wide_norms: tuple[WideNorm, WideNorm] | None = None
        if (found := family.qk_norms(attention)) is not None:
            of_queries, of_keys = found
            plus, is_behind = family.norm_plus, family.has_qk_norms_behind
            if len(of_queries.weight) == self._head_dim:
                self._head_norms = (
                    Norm(of_queries, plus, is_behind=is_behind),
                    Norm(of_keys, plus, is_behind=is_behind),
                )
            else:
                self._wide_norms = WideNorm(of_queries, plus), WideNorm(of_keys, plus)
        self._gates = family.gates_outputs
        self.qkv, self.o, self.residual = attention.qkv_proj, attention.o_proj, residual

    def __call__(
        self, x: Tensor, hidden: Tensor, rotaries: Rotaries, step: FusedStepAttention
    ) -> Tensor:
        """Joins what it makes of x [tokens, hidden] with the hidden states, in whose memory the
        result may be."""
        qkv: Tensor = self.qkv(x)
        if self._wide_norms is not None:
            queries, keys = self._wide_norms
            queries.apply_(qkv[:, : queries.width])
            keys.apply_(qkv[:, queries.width : queries.width + keys.width])
        qkv = qkv.view(len(x), -1, self._head_dim)
        gates: Tensor | None = None
        if self._gates:
            qkv, gates = self._without_gates(qkv)
        rotary = rotaries[self._rotary]
        out = step.attend_qkv(self._index, qkv, rotary, self._head_norms, self._params)
        if gates is not None:
            out = layer_ops.gated_heads(out, gates) if is_cpu_bf16(out) else out * gates.sigmoid()
        return self.residual.product(self.o, out.flatten(1), hidden)

    def _without_gates(self, qkv: Tensor) -> tuple[Tensor, Tensor]:
        """Returns queries, keys and values, and the gates of what queries find."""
        heads, _ = self._heads
        both = qkv[:, : 2 * heads].view(len(qkv), heads, 2, self._head_dim)
        queries, others = both[:, :, 0], qkv[:, 2 * heads :]
        if not is_cpu_bf16(qkv):
            return torch.cat([queries, others], 1), both[:, :, 1]
        joined = empty((len(qkv), heads + others.shape[1], self._head_dim), qkv.dtype)
        layer_ops.copy_heads(queries, joined[:, :heads])
        layer_ops.copy_heads(others, joined[:, heads:])
        return joined, both[:, :, 1]


class Mixer:
    """A module of transformers that keeps a state, which `RecurrentLayers` give to it."""

    def __init__(self, module: Module, residual: Residual) -> None:
        self._module, self._residual = module, residual

    def __call__(
        self, x: Tensor, hidden: Tensor, rotaries: Rotaries, step: FusedStepAttention
    ) -> Tensor:
        return self._residual.value(self._module(x[None])[0], hidden)
