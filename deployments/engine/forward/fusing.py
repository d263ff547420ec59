"""Fuses the projections of a model that read the same input, for the families that are known."""

import torch
from torch import nn
from transformers import PreTrainedModel

from deployments.engine.forward.families import Module, family_of
from deployments.engine.forward.linear import is_packable, pack_linears
from deployments.engine.forward.products.joined_linear import JoinedLinear
from deployments.engine.quantized.stored_weight import StoredWeight


def fuse(model: PreTrainedModel) -> None:
    """Fuses a model's projections in place, and packs its linear layers for the processor.

    A model that is not fusable keeps its projections. A fused one can only be called through its
    `decoder`. A second call changes nothing. A rank fuses its share, after it was sharded.
    """
    fuse_projections(model, model.device)
    pack_linears(model)


def fuse_projections(model: PreTrainedModel, device: torch.device | str) -> None:
    """The first half of `fuse`, for a model that will compute on `device`.

    Quantization comes after it. The weights need not be on `device` yet.
    """
    if family_of(model) is not None and _has_usual_parts(model) and not is_fused(model):
        for layer in model.model.layers:
            attention = layer.self_attn
            projections = attention.q_proj, attention.k_proj
            sizes = (len(projection.weight) // attention.head_dim for projection in projections)
            attention.fused_heads = tuple(sizes)
            _concatenate(attention, "qkv_proj", ("q_proj", "k_proj", "v_proj"))
            is_on_cpu = torch.device(device).type == "cpu"
            # Packed projections stay apart: each computes a part of the SwiGLU in its epilogue.
            if not is_on_cpu or not _is_packed(layer.mlp.gate_proj):
                _concatenate(layer.mlp, "gate_up_proj", ("gate_proj", "up_proj"))


def _is_packed(linear: Module) -> bool:
    return is_packable(linear) or isinstance(linear.weight.data, StoredWeight)


def _has_usual_parts(model: PreTrainedModel) -> bool:
    """Whether the rotary embedding rotates whole heads, and the activation is a SiLU."""
    base: Module = model.model
    rotary_dim = 2 * len(base.rotary_emb.inv_freq)
    has_whole_heads = rotary_dim == base.layers[0].self_attn.head_dim
    return bool(has_whole_heads and model.config.hidden_act == "silu")


def is_fused(model: PreTrainedModel) -> bool:
    return family_of(model) is not None and hasattr(model.model.layers[0].self_attn, "qkv_proj")


def heads_of(attention: Module) -> tuple[int, int]:
    """Heads of queries and of keys of a fused attention: a rank's share has fewer than a model."""
    heads: tuple[int, int] = attention.fused_heads
    return heads


def _concatenate(module: nn.Module, name: str, parts: tuple[str, ...]) -> None:
    """Replaces the linear layers `parts` of a module by one, with all their outputs."""
    linears: list[Module] = [module.get_submodule(part) for part in parts]
    # A part that is not quantized would have all of them dequantized.
    stay_apart = len({isinstance(linear.weight.data, StoredWeight) for linear in linears}) > 1
    fused = JoinedLinear(linears) if stay_apart else _fused(linears)
    for part in parts:
        del module._modules[part]
    module.add_module(name, fused)


def _fused(linears: list[Module]) -> nn.Linear:
    weight = torch.cat([linear.weight for linear in linears])
    fused = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    fused.weight = nn.Parameter(weight, requires_grad=False)
    if linears[0].bias is not None:
        fused.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]))
    return fused
