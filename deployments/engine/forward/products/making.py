"""Makes the products of a model's quantized weights and of its experts, each for the device that it
computes on."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.products.experts import (
    IMPLEMENTATION,
    are_replaceable,
    both_projections,
    quantized_experts,
)
from deployments.engine.forward.products.hooked_linear import with_hooks
from deployments.engine.forward.products.linear_products import held_matrices, linear_product
from deployments.engine.forward.products.plain_experts import known_activation, take_experts
from deployments.engine.forward.products.routed_experts import pack_experts, packable_activation
from deployments.engine.kernels.experts import ExpertActivation
from deployments.engine.quantized.stored_matrix import StoredMatrix
from deployments.engine.quantized.stored_weight import StoredWeight


def stored_weights(module: nn.Module) -> list[nn.Parameter]:
    """The weights of a module that stay quantized."""
    return [weight for weight in module.parameters() if isinstance(weight.data, StoredWeight)]


class _ProductProgress:
    """Tells which part of the bytes of all weights that become products has become some. The files
    of those that are quantized are let go."""

    def __init__(
        self,
        model: nn.Module,
        packable: Iterable[nn.Module],
        report: Callable[[float], None] | None,
    ) -> None:
        weights = {id(weight): weight for weight in stored_weights(model)}
        for experts in packable:
            weights |= {id(weight): weight for weight in experts.parameters(recurse=False)}
        self._left = self._total = sum(weight.nbytes for weight in weights.values())
        self._report = report

    def made(self, weight: Tensor) -> None:
        if isinstance(weight, StoredWeight):
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
    and linear layers by the products of these. Layers that share their weights still do. On a CPU
    experts of bfloat16 are packed, too, and on a GPU kernels of ours take all plain ones.

    on_progress: is called with the part of the bytes that is done, in 0..1.
    """
    packable = _packable(model, device)
    progress = _ProductProgress(model, packable, on_progress)
    _make_experts(model, device, packable, progress)
    matrices: dict[int, list[StoredMatrix]] = {}  # by the parameter's id
    layers = [
        (module, name, child)
        for module in model.modules()
        for name, child in module.named_children()
        if type(child) is nn.Linear and isinstance(child.weight.data, StoredWeight)
    ]
    for module, name, child in layers:
        stored = cast(StoredWeight, child.weight.data)
        product, matrices[id(child.weight)] = linear_product(stored, child.bias, device)
        module.register_module(name, with_hooks(product, child))
        progress.made(stored)
    for module in [*model.modules()]:
        for name, weight in [*module.named_parameters(recurse=False)]:
            if isinstance(weight.data, StoredWeight):
                stored = weight.data
                if id(weight) not in matrices:
                    holder, matrices[id(weight)] = held_matrices(stored, device)
                    # A part of the model, so that it moves with it.
                    module.add_module(f"matrices_of_{name}", holder)
                    progress.made(stored)
                on_device = stored.over(matrices[id(weight)]).to(device)
                module.register_parameter(name, nn.Parameter(on_device, requires_grad=False))


def _make_experts(
    model: nn.Module,
    device: torch.device,
    packable: Mapping[nn.Module, ExpertActivation],
    progress: _ProductProgress,
) -> None:
    """Replaces the weights of experts where transformers lets their computation be replaced."""
    take = pack_experts if device.type == "cpu" else take_experts
    for module, activation in packable.items():
        take(module, activation, progress.made)
    found = bool(packable)
    for module in [*model.modules()]:
        if not are_replaceable(module):
            continue
        weights = {
            name: weight.data
            for name, weight in module.named_parameters(recurse=False)
            if isinstance(weight.data, StoredWeight)
        }
        if not weights.keys() >= both_projections(module):
            continue
        for name, weight in weights.items():
            del module._parameters[name]
            module.add_module(name, quantized_experts(weight, device))
            progress.made(weight)
        if device.type == "cuda":
            from deployments.engine.forward.products.slab_experts import take_slabs

            take_slabs(module)
        found = True
    if found:
        cast(PreTrainedModel, model).set_experts_implementation(IMPLEMENTATION)


def _packable(model: nn.Module, device: torch.device) -> dict[nn.Module, ExpertActivation]:
    """The experts that kernels compute together, and what they compute between their products."""
    if device.type not in ("cpu", "cuda"):
        return {}
    known = packable_activation if device.type == "cpu" else known_activation
    replaceable = [module for module in model.modules() if are_replaceable(module)]
    found = {module: known(module) for module in replaceable}
    return {module: each for module, each in found.items() if each is not None}
