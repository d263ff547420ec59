"""The attention of a fused layer."""

from torch import Tensor

from deployments.engine.attention.interface import AttentionParams, FusedStepAttention
from deployments.engine.forward.fused.families import Family
from deployments.engine.forward.fused.fusing import heads_of
from deployments.engine.forward.fused.norm import Norm
from deployments.engine.forward.fused.residuals import Residual
from deployments.engine.forward.module import Module
from deployments.engine.kernels.rotary import Rotaries


class SelfAttention:
    """Queries, keys and values are one product, and the last product joins the hidden states."""

    def __init__(self, attention: Module, family: Family, residual: Residual) -> None:
        self._index: int = attention.layer_idx
        self._heads = heads_of(attention)
        self._head_dim: int = attention.head_dim
        self._params = AttentionParams(
            attention.scaling,
            family.window(attention),
            family.softcap(attention),
            family.sinks(attention),
        )
        self._rotary = family.rotary(attention)
        self._head_norms: tuple[Norm, Norm] | None = None
        if (found := family.head_norms(attention)) is not None:
            plus = family.norm_plus
            self._head_norms = Norm(found[0], plus), Norm(found[1], plus)
        self.qkv, self.o, self.residual = attention.qkv_proj, attention.o_proj, residual

    def __call__(
        self, x: Tensor, hidden: Tensor, rotaries: Rotaries, step: FusedStepAttention
    ) -> Tensor:
        """Joins what it makes of x [tokens, hidden] with the hidden states, in whose memory the
        result may be."""
        heads, kv_heads = self._heads
        qkv: Tensor = self.qkv(x).view(len(x), heads + 2 * kv_heads, self._head_dim)
        rotary = rotaries[self._rotary]
        out = step.attend_qkv(self._index, qkv, rotary, self._head_norms, self._params)
        return self.residual.product(self.o, out.flatten(1), hidden)
