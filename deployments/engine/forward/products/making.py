"""Makes the products of a model's quantized weights, each for the device that it computes on."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.products.dequantized_linear import DequantizedLinear
from deployments.engine.forward.products.experts import (
    IMPLEMENTATION,
    are_replaceable,
    both_projections,
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


class _ProductProgress:
    """Tells which part of the bytes of all quantized weights has become products, whose files are
    let go."""

    def __init__(self, model: nn.Module, report: Callable[[float], None] | None) -> None:
        self._left = self._total = sum(weight.nbytes for weight in stored_weights(model))
        self._report = report

    def made(self, weight: StoredWeight) -> None:
        weight.let_go()  # else files would be in memory beside what is made of them
        self._left -= weight.nbytes
        if self._report is not None:
            self._report(1 - self._left / self._total)


def make_products(
    model: nn.Module,
    device: torch.device,
    on_progress: Callable[[float], None] | None = None,
) -> None:
    """Replaces, in place, all quantized weights of a model by such that are in a device's memory,
    and linear layers by the products of these. Layers that share their weights still do.

    on_progress: is called with the part of the bytes that is done, in 0..1.
    """
    progress = _ProductProgress(model, on_progress)
    _make_experts(model, device, progress)
    matrices: dict[int, list[StoredMatrix]] = {}  # by the parameter's id
    layers = [
        (module, name, child)
        for module in model.modules()
        for name, child in module.named_children()
        if type(child) is nn.Linear and isinstance(child.weight.data, StoredWeight)
    ]
    for module, name, child in layers:
        stored = cast(StoredWeight, child.weight.data)
        product, matrices[id(child.weight)] = _linear(stored, child.bias, device)
        module.register_module(name, product)
        progress.made(stored)
    for module in [*model.modules()]:
        for name, weight in [*module.named_parameters(recurse=False)]:
            if isinstance(weight.data, StoredWeight):
                stored = weight.data
                if id(weight) not in matrices:
                    resident = _resident(stored, device)
                    # A part of the model, so that it moves with it.
                    module.add_module(f"matrices_of_{name}", nn.ModuleList(resident))
                    matrices[id(weight)] = [*resident]
                    progress.made(stored)
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


def _make_experts(model: nn.Module, device: torch.device, progress: _ProductProgress) -> None:
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
        if not weights.keys() >= both_projections(module) or None in parts.values():
            continue
        for name, of_layouts in parts.items():
            del module._parameters[name]
            module.add_module(name, quantized_experts(of_layouts or [], len(weights[name]), device))
            progress.made(weights[name])
        found = True
    if found:
        cast(PreTrainedModel, model).set_experts_implementation(IMPLEMENTATION)
