"""A target whose products are computed by kernels for GPUs, whatever slots a step has."""

from collections.abc import Sequence

import torch
from torch import Tensor

from deployments.engine.forward.adapters.rows import AdapterRows
from deployments.engine.forward.adapters.target import Shrunk, Target

MIN_RANK = 16  # the least that a matrix unit multiplies
OUTPUTS = 64  # of a program


def padded_rank(rank: int) -> int:
    """The ranks that a slot has memory for: a power of two."""
    return max(MIN_RANK, 1 << (rank - 1).bit_length())


class GpuTarget(Target):
    def __init__(
        self, n_in: int, n_outs: Sequence[int], n_slots: int, max_rank: int, like: Tensor
    ) -> None:
        super().__init__(n_in, n_outs, n_slots, padded_rank(max_rank), like)
        blocks = [
            (part, first, min(OUTPUTS, outs.stop - first))
            for part, outs in enumerate(self.outs)
            for first in range(outs.start, outs.stop, OUTPUTS)
        ]
        self._starts = [first for _, first, _ in blocks]
        self._blocks = torch.tensor(blocks, device=like.device)

    def shrink(self, x: Tensor, rows: AdapterRows) -> Shrunk:
        from deployments.engine.kernels.gpu import adapter_ops

        return [[adapter_ops.shrink(self.a, x, rows.tokens, rows.begins)]]

    def expand_(self, out: Tensor, shrunk: Shrunk, rows: AdapterRows, first: int = 0) -> None:
        from deployments.engine.kernels.gpu import adapter_ops

        ((own,),) = shrunk
        assert own is not None
        end = first + out.shape[1]
        chosen = [i for i, start in enumerate(self._starts) if first <= start < end]
        blocks = self._blocks[chosen[0] : chosen[-1] + 1]
        adapter_ops.expand_(self.b, out, own, rows.tokens, rows.begins, blocks, OUTPUTS, first)
