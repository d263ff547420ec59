"""Attention of a model whose layers do not all share their pages: each layer finds its own step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from deployments.engine.attention.interface import AttentionParams, FusedStepAttention
from deployments.engine.kernels.norms import HeadNorm
from deployments.engine.kernels.rotary import RotaryEmbedding
from kv.storage import Storage


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """The attention of one forward pass, by layer."""

    steps: Sequence[FusedStepAttention]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, params: AttentionParams
    ) -> Tensor:
        return self.steps[layer].attend(layer, q, k, v, params)

    def store(self, layer: int, k: Tensor, v: Tensor) -> None:
        self.steps[layer].store(layer, k, v)

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
        params: AttentionParams,
    ) -> Tensor:
        return self.steps[layer].attend_qkv(layer, qkv, rotary, norms, params)

    def store_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
    ) -> object:
        return self.steps[layer].store_qkv(layer, qkv, rotary, norms)


def plan_by_layer(
    storage: Storage, plan: Callable[[int], FusedStepAttention]
) -> FusedStepAttention:
    """`plan` is asked once for all layers whose tokens have the same pages and slots, by the first
    of them."""
    steps = {layer: plan(layer) for layer in dict.fromkeys(storage.addressed_as)}
    if len(steps) == 1:
        return steps[storage.addressed_as[0]]
    return GroupedAttention([steps[layer] for layer in storage.addressed_as])
