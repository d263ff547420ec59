"""Experts in all models whose experts transformers lets others compute.

On a CPU one kernel computes those of a layer, on a GPU a few do. Quantized ones that no kernel
knows multiply their tokens at once, one expert after the other. What becomes of a token is then
summed in the order in which its router chose its experts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

from deployments.engine.forward.products.expert_products import QuantizedExperts
from deployments.engine.forward.products.linear_products import linear_product
from deployments.engine.forward.products.routed_experts import first_projection, routed_experts
from deployments.engine.quantized.stored_weight import StoredWeight

IMPLEMENTATION = "manta"  # by which transformers knows it


class SeparateExperts(QuantizedExperts):
    """Each expert is a linear layer by itself, and may have an order of inputs of its own."""

    def __init__(self, experts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(experts)

    def multiply(self, x: Tensor, expert: int) -> Tensor:
        y: Tensor = self.experts[expert](x)
        return y


def quantized_experts(weight: StoredWeight, device: torch.device) -> QuantizedExperts:
    """The products of experts on a device."""
    # Products have outputs first, also where the parameter has them last, as gpt-oss' does.
    place = weight.place._replace(is_transposed=False)
    weight = StoredWeight(place, weight.dtype, weight.device)
    if device.type == "cuda" and (parts := parts_of_experts(weight)) is not None:
        from deployments.engine.forward.products.slab_experts import SlabExperts
        from deployments.engine.forward.products.slab_matrix import SlabMatrix

        if all(SlabMatrix.can_hold(part) for part in parts):
            return SlabExperts([SlabMatrix(part, device) for part in parts], len(weight))
    experts = [weight.matrix(number) for number in range(len(weight))]
    return SeparateExperts([linear_product(expert, None, device)[0] for expert in experts])


def are_replaceable(module: nn.Module) -> bool:
    """Whether a module has experts whose computation transformers lets others do."""
    return hasattr(module, "has_post_expert_norm")


def both_projections(experts: Any) -> frozenset[str]:
    """The names of the weights of replaceable experts. They are all quantized, or none is."""
    return frozenset({first_projection(experts), "down_proj"})


def parts_of_experts(weight: StoredWeight) -> list[StoredWeight] | None:
    """Experts [experts, outputs, inputs] in parts that have one layout, each with some outputs of
    all experts, of one arrangement in each. None: their outputs can't be parted so."""
    at, parts = 0, []
    for part in weight.matrix(0).by_arrangement():
        parts.append(weight.of_outputs(at, at + part.n_outputs))
        at += part.n_outputs
    return parts if all(_is_part(part) for part in parts) else None


def _is_part(experts: StoredWeight) -> bool:
    if len(experts.layouts) > 1:
        return False
    if not experts.is_ordered:
        return True
    return all(len(experts.matrix(number).by_arrangement()) == 1 for number in range(len(experts)))


def experts_forward(
    experts: Any, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """[tokens, hidden] -> [tokens, hidden]. The indices and weights are [tokens, k]. An index
    behind the last expert is none."""
    if (routed := routed_experts(experts)) is not None:
        answers: Tensor = routed(hidden, top_k_index, top_k_weights)
        return answers.to(hidden.dtype)
    if not isinstance(experts.down_proj, QuantizedExperts):
        own = type(experts).forward
        plain: Callable[..., Tensor] = getattr(own, "__wrapped__", grouped_mm_experts_forward)
        return plain(experts, hidden, top_k_index, top_k_weights)
    answers = _answers(experts, hidden, top_k_index)
    weighted = answers.view(*top_k_index.shape, -1) * top_k_weights[..., None]
    return weighted.sum(1).to(hidden.dtype)


def _answers(experts: Any, hidden: Tensor, top_k_index: Tensor) -> Tensor:
    """The answers of one expert after the other to their tokens, [tokens * k, hidden]."""
    k = top_k_index.shape[-1]
    chosen, places = top_k_index.flatten().sort(stable=True)
    found, counts = torch.unique_consecutive(chosen, return_counts=True)
    answers = hidden.new_zeros(len(chosen), hidden.shape[-1])
    groups = torch.split(places, counts.tolist())
    for expert, group in zip(found.tolist(), groups, strict=True):
        if expert < experts.num_experts:
            answers[group] = _answer(experts, hidden[group // k], expert)
    return answers


def _answer(experts: Any, x: Tensor, expert: int) -> Tensor:
    x = _project(experts, first_projection(experts), x, expert)
    x = experts._apply_gate(x) if experts.has_gate else experts.act_fn(x)
    x = _project(experts, "down_proj", x, expert)
    return experts.post_expert_norm(x) if experts.has_post_expert_norm else x


def _project(experts: Any, name: str, x: Tensor, expert: int) -> Tensor:
    y: Tensor = getattr(experts, name).multiply(x, expert)
    return y + getattr(experts, f"{name}_bias")[expert] if experts.has_bias else y


ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, experts_forward)
