"""Makes the products of a model's quantized weights, each for the device that it computes on."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.products.dequantized_linear import DequantizedLinear
from deployments.engine.forward.products.experts import (
    IMPLEMENTATION,
    are_replaceable,
    parts_of_experts,
    quantized_experts,
)
from deployments.engine.forward.products.joined_linear import JoinedLinear
from deployments.engine.forward.products.resident_matrix import ResidentMatrix
from deployments.engine.forward.quantized_linear import packed_linear
from deployments.engine.quantized.stored_matrix import StoredMatrix
from deployments.engine.quantized.stored_weight import StoredWeight

if TYPE_CHECKING:  # it needs triton
    from deployments.engine.forward.products.slab_matrix import SlabMatrix


def stored_weights(module: nn.Module) -> list[nn.Parameter]:
    """The weights of a module that stay quantized."""
    return [weight for weight in module.parameters() if isinstance(weight.data, StoredWeight)]


def make_products(model: nn.Module, device: torch.device) -> None:
    """Replaces, in place, all quantized weights of a model by such that are in a device's memory,
    and linear layers by the products of these. Layers that share their weights still do.
    """
    _make_experts(model, device)
    matrices: dict[int, list[StoredMatrix]] = {}  # by the parameter's id
    for module in [*model.modules()]:
        for name, child in module.named_children():
            if type(child) is nn.Linear and isinstance(child.weight.data, StoredWeight):
                product, own = _linear(child.weight.data, child.bias, device)
                matrices[id(child.weight)] = own
                module.register_module(name, product)
    for module in [*model.modules()]:
        for name, weight in [*module.named_parameters(recurse=False)]:
            if isinstance(stored := weight.data, StoredWeight):
                if id(weight) not in matrices:
                    resident = _resident(stored, device)
                    # A part of the model, so that it moves with it.
                    module.add_module(f"matrices_of_{name}", nn.ModuleList(resident))
                    matrices[id(weight)] = [*resident]
                on_device = stored.over(matrices[id(weight)]).to(device)
                module.register_parameter(name, nn.Parameter(on_device, requires_grad=False))


def _resident(stored: StoredWeight, device: torch.device) -> "list[ResidentMatrix | SlabMatrix]":
    return [_matrix(part, device) for part in stored.by_layout()]


def _matrix(part: StoredWeight, device: torch.device) -> "ResidentMatrix | SlabMatrix":
    if device.type == "cuda":
        from deployments.engine.forward.products.slab_matrix import SlabMatrix

        if SlabMatrix.can_hold(part):
            return SlabMatrix(part, device)
    return ResidentMatrix(part, device)


def _product(matrix: "ResidentMatrix | SlabMatrix", bias: Tensor | None) -> nn.Module:
    if isinstance(matrix, ResidentMatrix):
        return DequantizedLinear(matrix, bias)
    from deployments.engine.forward.products.slab_linear import SlabLinear

    return SlabLinear(matrix, bias)


def _linear(
    stored: StoredWeight, bias: Tensor | None, device: torch.device
) -> tuple[nn.Module, list[StoredMatrix]]:
    """The product of a linear layer's weights, and its matrices."""
    bias = None if bias is None else bias.detach().to(device)
    if device.type == "cpu" and (packed := packed_linear(stored, bias)) is not None:
        return packed, [*packed.matrices]
    matrices = _resident(stored, device)
    ends = torch.tensor([matrix.n_rows for matrix in matrices]).cumsum(0).tolist()
    parts = [
        _product(matrix, None if bias is None else bias[end - matrix.n_rows : end])
        for matrix, end in zip(matrices, ends, strict=True)
    ]
    return parts[0] if len(parts) == 1 else JoinedLinear(parts), [*matrices]


def _make_experts(model: nn.Module, device: torch.device) -> None:
    """Replaces the weights of experts where transformers lets their computation be replaced."""
    found = False
    for module in [*model.modules()]:
        if not are_replaceable(module):
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
            del module._parameters[name]
            module.add_module(name, quantized_experts(of_layouts or [], len(weights[name]), device))
        found = True
    if found:
        cast(PreTrainedModel, model).set_experts_implementation(IMPLEMENTATION)
