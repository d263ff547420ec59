"""Falcon, BLOOM and MPT, whose attention goes by distance (ALiBi), and asks for no implementation.

Their modules are overridden while the engine runs them: the same projections, and its attention.
Falcon may have a rotary embedding instead.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
from transformers.models.falcon.modeling_falcon import (
    FalconAttention,
    FalconModel,
    apply_rotary_pos_emb,
)
from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor

from deployments.engine.attention.hf_hook import current_step, paged_attention
from deployments.engine.forward.overriding import override, restore


def _attend(
    module: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, slopes: Tensor | None
) -> Tensor:
    out, _ = paged_attention(module, q, k, v, None, scaling=scale, slopes=slopes)
    return out.flatten(2)


def _falcon(
    module: Any,
    slopes: Tensor,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    **_: object,
) -> tuple[Tensor, None]:
    joined = module.query_key_value(hidden_states)
    if module.new_decoder_architecture:  # of each head of keys its queries, its key and its value
        share = module.num_heads // module.num_kv_heads
        parts = joined.unflatten(-1, (-1, share + 2, module.head_dim))
        q, (k, v) = parts[..., :share, :].flatten(2, 3), parts[..., share:, :].unbind(-2)
    else:
        q, k, v = module._split_heads(joined)
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    scale = module.inv_norm_factor
    if module.config.alibi:
        out = _attend(module, q, k, v, scale, slopes.bfloat16().float() * scale)
    else:
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        out = _attend(module, q, k, v, scale, None)
    return module.dense(out), None


def _bloom(
    module: Any, slopes: Tensor, hidden_states: Tensor, residual: Tensor, **_: object
) -> tuple[Tensor, None]:
    q, k, v = module._reshape(module.query_key_value(hidden_states))
    out = _attend(module, q, k, v, module.inv_norm_factor, slopes)
    return module.dense(out) + residual, None


def _mpt(module: Any, slopes: Tensor, hidden_states: Tensor, **_: object) -> tuple[Tensor, None]:
    joined = module.Wqkv(hidden_states)
    if module.clip_qkv:
        joined = joined.clamp(-module.clip_qkv, module.clip_qkv)
    q, k, v = joined.unflatten(-1, (3, module.n_heads, module.head_dim)).permute(2, 0, 3, 1, 4)
    return module.out_proj(_attend(module, q, k, v, module.softmax_scale, slopes)), None


def _slopes(module: Any, device: torch.device) -> Tensor:
    """The slopes of a module's heads, read off the first distance. [heads]"""
    ones = torch.ones(1, 2, dtype=torch.int64, device=device)
    biases: Tensor = build_alibi_tensor(ones, module.num_heads, torch.float32)
    return biases[:, 0, 1].clone()


def _slopes_of_mpt(module: Any, device: torch.device) -> Tensor:
    biases: Tensor = build_mpt_alibi_tensor(module.n_heads, 2, device=device)
    return -biases[:, 0, 0]


OVERRIDDEN: dict[type[nn.Module], tuple[Callable[..., object], Callable[..., Tensor]]] = {
    FalconAttention: (_falcon, _slopes),
    BloomAttention: (_bloom, _slopes),
    MptAttention: (_mpt, _slopes_of_mpt),
}


def use_distances(model: PreTrainedModel) -> None:
    """Has the attention of a model of these families be the engine's."""
    for module in model.modules():
        if (found := OVERRIDDEN.get(type(module))) is not None:
            current_step(model)
            forward, slopes = found
            override(module, "forward", partial(forward, module, slopes(module, model.device)))
        if isinstance(module, FalconModel):
            module.use_alibi = False  # else it makes a mask for each head


def drop_distances(model: PreTrainedModel) -> None:
    """Undoes `use_distances`."""
    for module in model.modules():
        if type(module) in OVERRIDDEN:
            restore(module, "forward")
        if isinstance(module, FalconModel):
            module.use_alibi = module.config.alibi
