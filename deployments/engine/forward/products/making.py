"""Makes the products of a model's quantized weights, each for the device that it computes on."""

from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.products.dequantized_linear import DequantizedLinear
from deployments.engine.forward.products.experts import (
    IMPLEMENTATION,
    QuantizedExperts,
    parts_of_experts,
)
from deployments.engine.forward.products.joined_linear import JoinedLinear
from deployments.engine.forward.products.resident_matrix import ResidentMatrix
from deployments.engine.quantized.stored_weight import StoredWeight


def stored_weights(module: nn.Module) -> list[nn.Parameter]:
    """The weights of a module that stay quantized."""
    return [weight for weight in module.parameters() if isinstance(weight.data, StoredWeight)]


def make_products(model: nn.Module, device: torch.device) -> None:
    """Replaces, in place, all quantized weights of a model by such that are in a device's memory,
    and linear layers by the products of these. Layers that share their weights still do.
    """
    matrices: dict[int, list[ResidentMatrix]] = {}  # by the parameter's id
    _make_experts(model, device)
    for module in [*model.modules()]:
        for name, child in module.named_children():
            if type(child) is nn.Linear and isinstance(child.weight.data, StoredWeight):
                found = _resident(child.weight, matrices, device)
                module.register_module(name, _linear(found, child.bias))
    for module in [*model.modules()]:
        for name, weight in [*module.named_parameters(recurse=False)]:
            if isinstance(stored := weight.data, StoredWeight):
                on_device = stored.over(_resident(weight, matrices, device)).to(device)
                module.register_parameter(name, nn.Parameter(on_device, requires_grad=False))


def _resident(
    weight: Tensor, matrices: dict[int, list[ResidentMatrix]], device: torch.device
) -> list[ResidentMatrix]:
    """The matrices of a parameter, each of one layout."""
    if id(weight) not in matrices:
        stored = weight.data
        assert isinstance(stored, StoredWeight)
        matrices[id(weight)] = [ResidentMatrix(part, device) for part in stored.by_layout()]
    return matrices[id(weight)]


def _linear(matrices: list[ResidentMatrix], bias: Tensor | None) -> nn.Module:
    ends = torch.tensor([matrix.n_rows for matrix in matrices]).cumsum(0).tolist()
    parts = [
        DequantizedLinear(
            matrix, None if bias is None else bias.detach()[end - matrix.n_rows : end]
        )
        for matrix, end in zip(matrices, ends, strict=True)
    ]
    return parts[0] if len(parts) == 1 else JoinedLinear(parts)


def _make_experts(model: nn.Module, device: torch.device) -> None:
    """Replaces the weights of experts where transformers lets their computation be replaced."""
    found = False
    for module in [*model.modules()]:
        if not hasattr(module, "has_post_expert_norm"):  # transformers' mark of such modules
            continue
        weights = {
            name: weight.data
            for name, weight in module.named_parameters(recurse=False)
            if isinstance(weight.data, StoredWeight)
        }
        parts = {name: parts_of_experts(weight) for name, weight in weights.items()}
        if not weights.keys() >= {"down_proj"} or None in parts.values():
            continue
        for name, of_layouts in parts.items():
            resident = [ResidentMatrix(part, device) for part in of_layouts or ()]
            del module._parameters[name]
            module.add_module(name, QuantizedExperts(resident, len(weights[name])))
        found = True
    if found:
        cast(PreTrainedModel, model).set_experts_implementation(IMPLEMENTATION)
