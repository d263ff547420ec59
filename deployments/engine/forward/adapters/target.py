"""The matrices of all loaded adapters for one linear layer, or for several that read one input.

A row with an adapter has `B (A x)` added to what the layer makes of its x. A row without one keeps
its bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from deployments.engine.forward.adapters.rows import AdapterRows


@dataclass(frozen=True, slots=True)
class LoraLayerWeights:
    """The matrices of one module, which add scaling * lora_b @ lora_a to its weight.

    lora_a: [rank, in]; lora_b: [out, rank].
    """

    lora_a: Tensor
    lora_b: Tensor
    scaling: float


class Target:
    """Part p of a joined layer has its own outputs and its own ranks.

    a: [slots, parts, max rank, in]; b: [slots, out, max rank]. Slot 0 is empty, and has no place.
    """

    def __init__(self, n_in: int, n_outs: Sequence[int], n_slots: int, max_rank: int, like: Tensor):
        """`n_outs` are of each part. `like` has the dtype and device of the layers."""
        self.n_in = n_in
        ends = [*accumulate(n_outs)]
        self.outs = [slice(end - n, end) for n, end in zip(n_outs, ends, strict=True)]
        self.a = like.new_zeros(n_slots, len(n_outs), max_rank, n_in)
        self.b = like.new_zeros(n_slots, ends[-1], max_rank)
        self._ranks = [[0] * len(n_outs) for _ in range(n_slots)]

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
        self.expand_(out, self.shrink(x, rows), rows, rows.tokens)

    def shrink(self, x: Tensor, rows: AdapterRows) -> Tensor:
        """A x: [tokens, in] -> [n, parts, max rank], of the tokens with an adapter."""
        own = x.index_select(0, rows.tokens)
        shrunk = own.new_empty(len(own), *self.a.shape[1:3])
        for slot, begin, end in rows.segments:
            for part, rank in enumerate(self._ranks[slot - 1]):
                a = self.a[slot - 1, part, :rank]
                shrunk[begin:end, part, :rank] = own[begin:end] @ a.t()
        return shrunk

    def expand_(
        self, out: Tensor, shrunk: Tensor, rows: AdapterRows, places: Tensor, first: int = 0
    ) -> None:
        """Adds B shrunk to out [..., outputs]. Its outputs are those from `first` on; the tokens
        with an adapter are in `places` [n]."""
        end = first + out.shape[1]
        for slot, begin, stop in rows.segments:
            at, ranks = places[begin:stop], self._ranks[slot - 1]
            for part, (outs, rank) in enumerate(zip(self.outs, ranks, strict=True)):
                if rank and first <= outs.start and outs.stop <= end:
                    added = shrunk[begin:stop, part, :rank] @ self.b[slot - 1, outs, :rank].t()
                    out[:, outs.start - first : outs.stop - first].index_add_(0, at, added)
