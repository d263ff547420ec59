"""The matrices of all loaded adapters for one linear layer, or for several that read one input.

A row with an adapter has `B (A x)` added to what the layer makes of its x. A row without one keeps
its bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from deployments.engine.forward.adapters.rows import AdapterGroup, AdapterRows
from deployments.engine.kernels.activations import GateActivation


@dataclass(frozen=True, slots=True)
class LoraLayerWeights:
    """The matrices of one module, which add scaling * lora_b @ lora_a to its weight.

    lora_a: [rank, in]; lora_b: [out, rank].
    """

    lora_a: Tensor
    lora_b: Tensor
    scaling: float


# By groups of a step and by parts: [slots, tokens of each, rank]; None where no slot has any.
Shrunk = list[list[Tensor | None]]


class Target:
    """Part p of a joined layer has its own outputs and its own ranks.

    a: [slots, parts, max rank, in]; b: [slots, out, max rank]. Slot 0 is empty, and has no memory.
    """

    def __init__(self, n_in: int, n_outs: Sequence[int], n_slots: int, max_rank: int, like: Tensor):
        """`n_outs` are of each part. `like` has the dtype and device of the layers."""
        self.n_in = n_in
        ends = [*accumulate(n_outs)]
        self.outs = [slice(end - n, end) for n, end in zip(n_outs, ends, strict=True)]
        self.a = like.new_zeros(n_slots, len(n_outs), max_rank, n_in)
        self.b = like.new_zeros(n_slots, ends[-1], max_rank)
        self._ranks = [[0] * len(n_outs) for _ in range(n_slots)]

    @property
    def n_bytes(self) -> int:
        return self.a.nbytes + self.b.nbytes

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        self.a[slot - 1].zero_()
        self.b[slot - 1].zero_()
        self._ranks[slot - 1] = [0] * len(self.outs)

    def append(self, slot: int, part: int, weights: LoraLayerWeights, scale: float) -> None:
        """Adds an adapter to those in a slot, `scale` times: their ranks stand side by side."""
        first = self._ranks[slot - 1][part]
        end = self._ranks[slot - 1][part] = first + len(weights.lora_a)
        b = weights.lora_b.to(self.b.device, torch.float32) * (weights.scaling * scale)
        self.a[slot - 1, part, first:end].copy_(weights.lora_a)
        self.b[slot - 1, self.outs[part], first:end].copy_(b)

    def add_(self, out: Tensor, x: Tensor, rows: AdapterRows) -> None:
        """Adds to out [tokens, out] what adapters make of x [tokens, in]."""
        self.expand_(out, self.shrink(x, rows), rows)

    def shrink(self, x: Tensor, rows: AdapterRows) -> Shrunk:
        """A x, of x [tokens, in] and the tokens with an adapter."""
        return [self._shrink(x, group) for group in rows.groups]

    def _shrink(self, x: Tensor, group: AdapterGroup) -> list[Tensor | None]:
        own = x.index_select(0, group.gathered)
        own = own.view(_width(group.slots), -1, self.n_in)
        return [
            torch.bmm(own, self.a[group.slots, part, :rank].transpose(1, 2)) if rank else None
            for part, rank in enumerate(self._ranks_in(group.slots))
        ]

    def expand_(self, out: Tensor, shrunk: Shrunk, rows: AdapterRows, first: int = 0) -> None:
        """Adds B shrunk to out [tokens, outputs], which are those from `first` on."""
        end = first + out.shape[1]
        for group, parts in zip(rows.groups, shrunk, strict=True):
            for outs, part in zip(self.outs, parts, strict=True):
                if part is None or outs.start < first or outs.stop > end:
                    continue
                b = self.b[group.slots, outs, : part.shape[2]]
                added = torch.bmm(part, b.transpose(1, 2)).flatten(0, 1)
                if group.kept is not None:
                    added = added.index_select(0, group.kept)
                own = out[:, outs.start - first : outs.stop - first]
                own.index_add_(0, rows.tokens[group.indices], added)

    def activate_(
        self, gate: Tensor, up: Tensor, x: Tensor, rows: AdapterRows, activation: GateActivation
    ) -> Tensor:
        """activation(gate) * up [tokens, out] of what the two parts of the layer make of x, with
        what adapters add. Both are overwritten."""
        shrunk = self.shrink(x, rows)
        self.expand_(gate, shrunk, rows)
        self.expand_(up, shrunk, rows, first=gate.shape[1])
        return activation(gate).mul_(up)

    def _ranks_in(self, slots: slice) -> list[int]:
        """The largest of each part."""
        return [max(ranks) for ranks in zip(*self._ranks[slots], strict=True)]


def _width(slots: slice) -> int:
    n: int = slots.stop - slots.start
    return n
