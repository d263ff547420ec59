"""Joins the weights of a model that read the same input, for kinds of models that are known."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from deployments.engine.forward.linear import is_packable, pack_linears

Module = Any  # a torch module of which attributes are read that its type does not tell
# Kinds of models, and where their attention layers have their sliding window. Not subclasses: they
# may compute something else under the same names.
WINDOWS: dict[type[PreTrainedModel], Callable[[Module], int | None]] = {
    LlamaForCausalLM: lambda attention: None,
    MistralForCausalLM: lambda attention: attention.config.sliding_window,
    Qwen2ForCausalLM: lambda attention: attention.sliding_window,
    Qwen3ForCausalLM: lambda attention: attention.sliding_window,
}


def fuse(model: PreTrainedModel) -> None:
    """Joins the matrices that read the same input, in place, and fits all to the processor.

    A model of a fusable kind can't be called any more afterwards; its `decoder` can. One that was
    fused before stays as it is.
    """
    join(model, model.device)
    pack_linears(model)


def join(model: PreTrainedModel, device: torch.device | str) -> None:
    """The first half of `fuse`, which has to come before the matrices are quantized, and may come
    before they are on the device that computes."""
    if type(model) in WINDOWS and _is_plain(model) and not is_fused(model):
        for layer in model.model.layers:
            _join(layer.self_attn, "qkv_proj", ("q_proj", "k_proj", "v_proj"))
            on_cpu = torch.device(device).type == "cpu"
            if not on_cpu or not is_packable(layer.mlp.gate_proj):
                # Where it is packed what follows each is computed with it.
                _join(layer.mlp, "gate_up_proj", ("gate_proj", "up_proj"))


def is_fusable(config: PretrainedConfig) -> bool:
    """Whether models of this kind have a fused form, if they are as most of them."""
    return type(config) in {kind.config_class for kind in WINDOWS}


def _is_plain(model: PreTrainedModel) -> bool:
    """Whether it is as most of its kind are: whole heads are turned, and the gate is a SiLU."""
    stack: Module = model.model
    turned = 2 * len(stack.rotary_emb.inv_freq)
    return bool(turned == stack.layers[0].self_attn.head_dim and model.config.hidden_act == "silu")


def is_fused(model: PreTrainedModel) -> bool:
    return type(model) in WINDOWS and hasattr(model.model.layers[0].self_attn, "qkv_proj")


def _join(module: nn.Module, name: str, parts: tuple[str, ...]) -> None:
    """One matrix in the place of several; the several are gone."""
    linears: list[Module] = [module.get_submodule(part) for part in parts]
    weight = torch.cat([linear.weight for linear in linears])
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if linears[0].bias is not None:
        joined.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]))
    for part in parts:
        delattr(module, part)
    module.add_module(name, joined)
