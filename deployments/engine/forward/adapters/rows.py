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
NO_SLOTS = np.empty(0, dtype=np.int64)
# Slots are multiplied together where filling up their tokens to equal numbers makes no more than
# these, or so many times the tokens.
MAX_FILLED, TIMES_FILLED = 64, 3


@dataclass(frozen=True, slots=True)
class AdapterGroup:
    """Slots side by side, each with as many tokens: some of them stand for none.

    slots: of the matrices, which begin with slot 1. gathered [slots * tokens]: indices of tokens.
    kept [n]: which of these are tokens that have an adapter; None: all. indices: of them among
    `AdapterRows.tokens`.
    """

    slots: slice
    gathered: Tensor
    kept: Tensor | None
    indices: slice


@dataclass(frozen=True)
class AdapterRows:
    """tokens [n] are the indices of the tokens with an adapter, slot after slot: those of slot i
    from begins[i - 1] to begins[i]. Both are on the device. slots [n]: of each of the tokens.
    segments: the same for kernels on a CPU, and None on a GPU."""

    tokens: Tensor
    begins: Tensor
    slots: IntArray
    segments: Segments | None

    @staticmethod
    def from_step(
        step: StepInputs, n_slots: int, device: torch.device, memory: Segments | None = None
    ) -> "AdapterRows":
        """Returns the tokens with an adapter of a step that has a slot for each row.

        The segments are in `memory` if it has room for every token of the step, else in new memory.
        """
        others, tokens, slots = _split(step)
        numbers = to_device(_numbers(tokens, slots, n_slots), device)
        segments = None
        if device.type == "cpu":
            segments = _segments(tokens, slots, others, n_slots, memory)
        return AdapterRows(numbers[n_slots + 1 :], numbers[: n_slots + 1], slots, segments)

    @cached_property
    def groups(self) -> tuple[AdapterGroup, ...]:
        return tuple(_groups(self.slots, self.tokens.cpu().numpy(), self.tokens.device))


class StaticRows:
    """The adapters of captured steps' tokens, in static memory. There are up to `max_tokens`."""

    def __init__(self, n_slots: int, max_tokens: int, device: torch.device) -> None:
        self._first = n_slots + 1
        self._numbers = torch.zeros(self._first + max_tokens, dtype=torch.int64, device=device)

    def load(self, step: StepInputs) -> None:
        """Copies those of a step. Does not wait for the copy to end."""
        _, tokens, slots = _split(step)
        numbers = to_device(_numbers(tokens, slots, self._first - 1), self._numbers.device)
        self._numbers[: len(numbers)].copy_(numbers, non_blocking=True)

    def view(self, n: int) -> AdapterRows:
        """Returns the adapters of a step with `n` tokens. `begins` tells which tokens have one."""
        tokens = self._numbers[self._first : self._first + n]
        return AdapterRows(tokens, self._numbers[: self._first], NO_SLOTS, None)


def _split(step: StepInputs) -> tuple[IntArray, IntArray, IntArray]:
    """Returns the tokens without an adapter, those with one by their slots, and these slots."""
    slots = np.repeat(step.adapter_slots, step.new_len)
    others, tokens = np.split(np.argsort(slots, kind="stable"), [(slots == NO_ADAPTER).sum()])
    return others, tokens, slots[tokens]


def _numbers(tokens: IntArray, slots: IntArray, n_slots: int) -> IntArray:
    """Returns where in the sorted `slots` [n] each slot begins, where they end, and the tokens.

    The shape is [n_slots + 1 + n].
    """
    return np.concatenate([np.searchsorted(slots, np.arange(1, n_slots + 2)), tokens])


def _segments(
    tokens: IntArray, slots: IntArray, others: IntArray, n_slots: int, memory: Segments | None
) -> Segments:
    """Makes the segments of tokens [n] with sorted slots [n], and of the tokens without a slot."""
    n = len(tokens) + len(others)
    if memory is None or n > len(memory.tokens):
        segments = empty_segments(len(tokens), n_slots, len(others))
    else:
        segments = memory._replace(tokens=memory.tokens[:n])
    found, begins, counts = np.unique(slots, return_index=True, return_counts=True)
    table = np.stack([found - 1, begins, begins + counts], axis=1)
    for kept, numbers, behind in zip(segments, (tokens, table, others), (0, 0, -1), strict=True):
        filled = kept.numpy()
        filled[: len(numbers)] = numbers
        filled[len(numbers) :] = behind
    return segments


def _groups(slots: IntArray, tokens: IntArray, device: torch.device) -> Iterator[AdapterGroup]:
    """Groups tokens [n] by their slots [n], which are sorted."""
    found, begins, counts = np.unique(slots, return_index=True, return_counts=True)
    n_filled = (found[-1] - found[0] + 1) * counts.max()
    if n_filled <= max(MAX_FILLED, TIMES_FILLED * len(tokens)):
        yield _group(slots, tokens, 0, device)
        return
    for begin, end in zip(begins.tolist(), (begins + counts).tolist(), strict=True):
        yield _group(slots[begin:end], tokens[begin:end], begin, device)


def _group(slots: IntArray, tokens: IntArray, begin: int, device: torch.device) -> AdapterGroup:
    first, counts = int(slots[0]), np.bincount(slots - slots[0])
    width = int(counts.max())
    nth = np.arange(len(slots)) - np.repeat(counts.cumsum() - counts, counts)
    kept = (slots - first) * width + nth
    gathered = np.zeros(len(counts) * width, dtype=np.int64)
    gathered[kept] = tokens
    is_full = len(tokens) == len(gathered)
    return AdapterGroup(
        slice(first - 1, first - 1 + len(counts)),
        to_device(gathered, device),
        None if is_full else to_device(kept, device),
        slice(begin, begin + len(tokens)),
    )
