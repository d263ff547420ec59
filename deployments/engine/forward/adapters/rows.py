"""Which tokens of a step have which adapter, in groups that are multiplied at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from deployments.engine.forward.inputs import StepInputs
from deployments.engine.kernels.cpu.adapter_ops import Segments, empty_segments
from deployments.engine.transfer import to_device
from kv.arrays import IntArray

NO_ADAPTER = 0  # the slot that is always empty
# Slots are multiplied together where filling up their tokens to equal numbers makes no more than
# these, or so many times the tokens.
MAX_FILLED, TIMES_FILLED = 64, 3


@dataclass(frozen=True, slots=True)
class Group:
    """Slots side by side, each with as many tokens: some of them stand for none.

    slots: of the matrices, which begin with slot 1. gathered [slots * tokens]: indices of tokens.
    kept [n]: which of these are tokens that have an adapter; None: all. places: of them among
    `AdapterRows.tokens`.
    """

    slots: slice
    gathered: Tensor
    kept: Tensor | None
    places: slice


@dataclass(frozen=True)
class AdapterRows:
    """tokens [n] are the indices of the tokens with an adapter, slot after slot. slots [n]: of each
    of them. segments: the same for kernels on a CPU."""

    tokens: Tensor
    slots: IntArray
    segments: Segments
    n_slots: int

    @staticmethod
    def of(
        step: StepInputs, n_slots: int, device: torch.device, memory: Segments | None = None
    ) -> "AdapterRows":
        """Those of a step with a slot for each row. The segments are in `memory` if there is room
        for every token of the step, and in new memory if not."""
        slots = np.repeat(step.adapter_slots, step.new_len)
        others, tokens = np.split(np.argsort(slots, kind="stable"), [(slots == NO_ADAPTER).sum()])
        own = slots[tokens]
        if memory is None or len(slots) > len(memory.tokens):
            segments = empty_segments(len(tokens), n_slots, len(others))
        else:
            segments = memory._replace(tokens=memory.tokens[: len(slots)])
        _fill(segments, tokens, own, others)
        return AdapterRows(to_device(tokens, device), own, segments, n_slots)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(_groups(self.slots, self.tokens.cpu().numpy(), self.tokens.device))

    @cached_property
    def begins(self) -> Tensor:
        """[n_slots + 1], the first of the `tokens` of each slot, and the end of them."""
        firsts = np.searchsorted(self.slots, np.arange(1, self.n_slots + 2))
        return to_device(firsts, self.tokens.device)


def _fill(segments: Segments, tokens: IntArray, slots: IntArray, others: IntArray) -> None:
    """With tokens [n] of these slots [n], which are sorted, and the tokens without one."""
    found, begins, counts = np.unique(slots, return_index=True, return_counts=True)
    table = np.stack([found - 1, begins, begins + counts], axis=1)
    for memory, numbers, behind in zip(segments, (tokens, table, others), (0, 0, -1), strict=True):
        filled = memory.numpy()
        filled[: len(numbers)] = numbers
        filled[len(numbers) :] = behind


def _groups(slots: IntArray, tokens: IntArray, device: torch.device) -> Iterator[Group]:
    """Of tokens [n] with these slots [n], which are sorted."""
    found, begins, counts = np.unique(slots, return_index=True, return_counts=True)
    n_filled = (found[-1] - found[0] + 1) * counts.max()
    if n_filled <= max(MAX_FILLED, TIMES_FILLED * len(tokens)):
        yield _group(slots, tokens, 0, device)
        return
    for begin, end in zip(begins.tolist(), (begins + counts).tolist(), strict=True):
        yield _group(slots[begin:end], tokens[begin:end], begin, device)


def _group(slots: IntArray, tokens: IntArray, begin: int, device: torch.device) -> Group:
    first, counts = int(slots[0]), np.bincount(slots - slots[0])
    width = int(counts.max())
    nth = np.arange(len(slots)) - np.repeat(counts.cumsum() - counts, counts)
    kept = (slots - first) * width + nth
    gathered = np.zeros(len(counts) * width, dtype=np.int64)
    gathered[kept] = tokens
    is_full = len(tokens) == len(gathered)
    return Group(
        slice(first - 1, first - 1 + len(counts)),
        to_device(gathered, device),
        None if is_full else to_device(kept, device),
        slice(begin, begin + len(tokens)),
    )
