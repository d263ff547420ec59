"""Which tokens of a step have which adapter. Tokens of one adapter are a segment."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deployments.engine.forward.inputs import StepInputs
from deployments.engine.transfer import to_device
from kv.arrays import IntArray

NO_ADAPTER = 0  # the slot that is always empty


class Segment(NamedTuple):
    """Places `begin` to `end` (excluded) of `AdapterRows.tokens`, whose adapter is in `slot`."""

    slot: int
    begin: int
    end: int


@dataclass(frozen=True)
class AdapterRows:
    """slots [tokens] are those of all tokens of the step. tokens [n] and others [tokens - n] are
    indices of tokens: of those with an adapter, segment after segment, and of those without."""

    slots: IntArray
    tokens: Tensor
    others: Tensor
    segments: tuple[Segment, ...]

    @staticmethod
    def of(step: StepInputs, device: torch.device) -> "AdapterRows":
        """Those of a step with a slot for each row."""
        slots = np.repeat(step.adapter_slots, step.new_len)
        order = np.argsort(slots, kind="stable")
        n_others = int((slots == NO_ADAPTER).sum())
        found, begins = np.unique(slots[order[n_others:]], return_index=True)
        ends = [*begins[1:].tolist(), len(slots) - n_others]
        return AdapterRows(
            slots,
            to_device(order[n_others:], device),
            to_device(order[:n_others], device),
            tuple(map(Segment, found.tolist(), begins.tolist(), ends)),
        )

    @cached_property
    def in_order(self) -> Tensor:
        """[n] indices for tensors whose tokens are `tokens`."""
        return torch.arange(len(self.tokens), device=self.tokens.device)
