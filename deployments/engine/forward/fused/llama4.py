"""Llama 4: what its layers have in a form of their own, in the form that others have it."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.llama4.modeling_llama4 import Llama4Router, Llama4TextExperts

from deployments.engine.forward.fused.family import NOT_ROTATED
from deployments.engine.forward.module import Module
from deployments.engine.forward.products.experts import experts_forward


class ReplaceableExperts(Llama4TextExperts):  # type: ignore[misc]
    """The experts with the attributes of those whose computation transformers lets others do."""

    has_gate = is_concatenated = is_transposed = True
    has_bias = has_post_expert_norm = _is_expert_parallel = False

    def forward(self, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]. `index` and `weights` are [tokens, k]."""
        return experts_forward(self, hidden, index, weights)

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        gated: Tensor = self.act_fn(gate) * up
        return gated


class ChoosingRouter(Llama4Router):  # type: ignore[misc]
    """The router, which says nothing of experts that it has not chosen."""

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[tokens, hidden] -> logits [tokens, experts], weights and experts [tokens, k]"""
        logits = nn.Linear.forward(self, hidden_states)
        best, index = logits.topk(self.top_k, -1)
        return logits, best.float().sigmoid().to(logits.dtype), index


ADAPTED: dict[type[nn.Module], type[nn.Module]] = {
    Llama4TextExperts: ReplaceableExperts,
    Llama4Router: ChoosingRouter,
}


def adapt(model: PreTrainedModel) -> None:
    """Gives experts and routers the interface of others, and norms of heads their weights."""
    for module in model.modules():
        module.__class__ = ADAPTED.get(type(module), type(module))
        norm: Any = module._modules.get("qk_norm")
        if norm is not None and not hasattr(norm, "weight"):
            ones = torch.ones(module.head_dim, dtype=model.dtype, device=model.device)
            norm.register_buffer("weight", ones, persistent=False)


def window(attention: Module) -> int | None:
    """The chunk of tokens within which a layer attends; None: it attends to all."""
    config = attention.config
    is_chunked = config.layer_types[attention.layer_idx] == "chunked_attention"
    found: int | None = config.attention_chunk_size if is_chunked else None
    return found


def qk_norms(attention: Module) -> tuple[Module, Module] | None:
    """Queries and keys have the same norm, where there is one."""
    norm = attention._modules.get("qk_norm")
    return None if norm is None else (norm, norm)


def query_scale(config: PretrainedConfig, rotary: str, positions: Tensor) -> Tensor | None:
    """The temperature of layers without positions, which grows with them. [1, tokens]"""
    if rotary != NOT_ROTATED or not config.attn_temperature_tuning:
        return None
    laps = torch.floor((positions.float() + 1) / config.floor_scale)
    scale: Tensor = torch.log1p(laps) * config.attn_scale + 1
    return scale
