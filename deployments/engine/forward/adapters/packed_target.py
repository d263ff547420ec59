"""A target whose matrices are packed for the kernels of bfloat16 on a CPU."""

from collections.abc import Sequence

import torch
from torch import Tensor

from deployments.engine.forward.adapters.rows import AdapterRows
from deployments.engine.forward.adapters.target import LoraLayerWeights, Target
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu import adapter_ops
from deployments.engine.kernels.cpu.adapter_kernels import RANKS
from deployments.engine.kernels.cpu.features import has_matmul_kernels, is_cpu_bf16


def can_be_packed(n_in: int, like: Tensor) -> bool:
    """Whether `PackedTarget` is for layers with so many inputs, of the dtype of `like`."""
    return n_in % 2 == 0 and is_cpu_bf16(like) and has_matmul_kernels()


class PackedTarget(Target):
    """A target with a multiple of RANKS ranks. Shrink and expand are one kernel."""

    def __init__(self, n_in: int, n_outs: Sequence[int], n_slots: int, max_rank: int) -> None:
        super().__init__(n_in, n_outs, n_slots, 0, torch.empty(0))
        self._packed = adapter_ops.empty_adapters(
            n_in, self.outs, n_slots, -(-max_rank // RANKS) * RANKS
        )
        self._ahead = adapter_ops.NOTHING_AHEAD

    def fetch_ahead(self, following: "PackedTarget") -> None:
        """While this one's products are computed, the matrices of the one that follows are
        fetched: read when they are needed, most of that time would be waited for."""
        self._ahead = following._packed.inputs

    @property
    def n_bytes(self) -> int:
        return self._packed.a.nbytes + self._packed.b.nbytes

    def clear(self, slot: int) -> None:
        for matrices in (self._packed.a, self._packed.b, self._packed.ranks):
            matrices[slot - 1].zero_()

    def append(self, slot: int, part: int, weights: LoraLayerWeights, scale: float) -> None:
        b = weights.lora_b.float() * (weights.scaling * scale)
        adapter_ops.put(self._packed, slot - 1, part, weights.lora_a, b)

    def add_(self, out: Tensor, x: Tensor, rows: AdapterRows) -> None:
        adapter_ops.add_(self._packed, out, x, _segments(rows), self._ahead)

    def activate_(
        self, gate: Tensor, up: Tensor, x: Tensor, rows: AdapterRows, activation: GateActivation
    ) -> Tensor:
        segments = _segments(rows)
        adapter_ops.activate_(self._packed, gate, up, x, segments, activation, self._ahead)
        return gate


def _segments(rows: AdapterRows) -> adapter_ops.Segments:
    assert rows.segments is not None, "not a step on a CPU"
    return rows.segments
