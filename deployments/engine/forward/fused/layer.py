"""One layer of a fused model: attention, or a mixer, and a feed-forward, with norms."""

from torch import Tensor
from transformers import PretrainedConfig

from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.fused.attention import Mixer, SelfAttention
from deployments.engine.forward.fused.family import Family
from deployments.engine.forward.fused.feed_forward import feed_forward
from deployments.engine.forward.fused.norm import Norm
from deployments.engine.forward.fused.residuals import residual
from deployments.engine.forward.module import Module
from deployments.engine.kernels.rotary import Rotaries


class FusedLayer:
    """A decoder layer of a fused model, with the weights of that model."""

    def __init__(self, layer: Module, family: Family, config: PretrainedConfig) -> None:
        norms = [
            None if name is None else norm_of(family, getattr(layer, name)) for name in family.norms
        ]
        factor = family.residual_factor(config)
        self._norms = norms[0] or _unchanged, norms[2] or _unchanged
        self._is_parallel = family.is_parallel
        first, mixer = residual(norms[1], factor), family.mixer(layer)
        self._attention: SelfAttention | Mixer
        if mixer is None:
            self._attention = SelfAttention(layer.self_attn, family, first)
        else:
            self._attention = Mixer(mixer, first)
        behind = residual(norms[3], factor)
        self._mlp = feed_forward(family.mlp(layer), behind, family.scales_expert_inputs)

    def __call__(self, x: Tensor, rotaries: Rotaries, step: FusedStepAttention) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]. `x` may be changed."""
        attention_norm, mlp_norm = self._norms
        normed = attention_norm(x)
        x = self._attention(normed, x, rotaries, step)
        return self._mlp(normed if self._is_parallel else mlp_norm(x), x)


def norm_of(family: Family, norm: Module) -> Norm:
    """A norm of a layer, or the one behind them all."""
    return Norm(norm, family.norm_plus, family.has_centered_norms)


def _unchanged(x: Tensor) -> Tensor:
    return x
