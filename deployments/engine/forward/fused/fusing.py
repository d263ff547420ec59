"""Fuses the projections of a model that read the same input, for the families that are known."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel

from deployments.engine.forward.fused.families import family_of
from deployments.engine.forward.fused.family import GATE_UP, QKV, Family
from deployments.engine.forward.linear import is_packable, pack_linears
from deployments.engine.forward.module import Module
from deployments.engine.forward.products.joined_linear import JoinedLinear
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.quantized.stored_weight import StoredWeight

PARTS = {QKV: ("q_proj", "k_proj", "v_proj"), GATE_UP: ("gate_proj", "up_proj")}
# Names of what all tokens share beside experts.
SHARED = ("shared_expert", "shared_experts", "shared_mlp")


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
    family = family_of(model)
    if family is None or is_fused(model) or not _has_usual_parts(model, family):
        return
    family.adapt(model)
    is_on_cpu = torch.device(device).type == "cpu"
    for attention in attentions(model):
        if QKV in family.joined:
            config = attention.config
            attention.fused_heads = config.num_attention_heads, config.num_key_value_heads
            continue
        of_queries, of_keys = (
            len(projection.weight) // attention.head_dim
            for projection in (attention.q_proj, attention.k_proj)
        )
        attention.fused_heads = of_queries // (2 if family.gates_outputs else 1), of_keys
        _concatenate(attention, QKV)
    for layer in model.model.layers if GATE_UP not in family.joined else ():
        for _, mlp in gated_mlps(family.mlp(layer)):
            # Packed projections stay apart: each computes a part of the gate in its epilogue.
            if not is_on_cpu or not _is_packed(mlp.gate_proj):
                _concatenate(mlp, GATE_UP)


def adapt(model: PreTrainedModel) -> None:
    """Gives the modules of a known family the interface that others have."""
    if (family := family_of(model)) is not None:
        family.adapt(model)


def _is_packed(linear: Module) -> bool:
    return is_packable(linear) or isinstance(linear.weight.data, StoredWeight)


def _has_usual_parts(model: PreTrainedModel, family: Family) -> bool:
    """Whether a kernel knows the activation, and projections give the outputs of their heads. On
    ranks those don't that are joined in the checkpoint, nor those whose heads are normed together.
    """
    names = (QKV,) if QKV in family.joined else PARTS[QKV]
    if any(getattr(attentions(model)[0], name)._forward_hooks for name in names):
        return False
    gated = [mlp for layer in model.model.layers for _, mlp in gated_mlps(family.mlp(layer))]
    return all(activation_of(mlp) is not None for mlp in gated)


def gated_mlps(mlp: Module) -> list[tuple[str, Module]]:
    """The gated feed-forwards of a layer's one, by their names below it: itself, or the one that
    all tokens share beside experts."""
    if not hasattr(mlp, "experts"):
        return [("", mlp)]
    return [(name, own) for name in SHARED if (own := mlp._modules.get(name)) is not None]


def activation_of(mlp: Module) -> GateActivation | None:
    """The activation of a feed-forward's gate; None: no kernel knows it."""
    given = mlp._modules.get("act_fn", mlp._modules.get("activation_fn"))
    if given is None:
        return None
    probe = torch.linspace(-5, 5, 41)
    found = cast(torch.Tensor, given(probe))
    return next((known for known in GateActivation if torch.allclose(known(probe), found)), None)


def rotary_kinds(model: PreTrainedModel, family: Family) -> Sequence[str]:
    """The kinds of the rotary embeddings of a model's layers, each once."""
    return [*dict.fromkeys(family.rotary(attention) for attention in attentions(model))]


def is_fused(model: PreTrainedModel) -> bool:
    return family_of(model) is not None and hasattr(attentions(model)[0], "fused_heads")


def attentions(model: PreTrainedModel) -> list[Module]:
    """The attention of each layer of a known family that has one."""
    base: Module = model.model
    return [layer.self_attn for layer in base.layers if hasattr(layer, "self_attn")]


def heads_of(attention: Module) -> tuple[int, int]:
    """Heads of queries and of keys of a fused attention: a rank's share has fewer than a model."""
    heads: tuple[int, int] = attention.fused_heads
    return heads


def parts_of(model: PreTrainedModel, name: str) -> Sequence[str]:
    """The modules of the checkpoint that a linear layer of a fused model is made of."""
    family = family_of(model)
    assert family is not None
    return (name,) if name in family.joined else PARTS[name]


def _concatenate(module: nn.Module, name: str) -> None:
    """Replaces linear layers of a module by one, with all their outputs."""
    parts = PARTS[name]
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
