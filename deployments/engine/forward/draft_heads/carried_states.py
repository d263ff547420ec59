"""The states of the last tokens of running sequences, which a draft head reads in the next step.

A head reads a token with the state of the token before it. How many tokens of a step count is known
behind it alone, so as many are kept as a step may draft.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deployments.engine.transfer import to_device
from kv.arrays import IntArray

NOBODY, UNKNOWN = -1, -1  # the slot of a sequence without one; a position without a state


class CarriedStates:
    """Slots of sequences, each with the states of its last `window` tokens. One thread uses it."""

    def __init__(
        self, n_slots: int, window: int, size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """`size` is that of a state."""
        self._window, self._device = window, device
        self._slots: dict[str, int] = {}  # by the sequence's name
        self._free = [*range(n_slots)]
        # Which position each state is of. On the host: it decides what is read and written.
        self._positions = np.full((n_slots, window), UNKNOWN)
        # By slot. The last one is of zeros, and stands for all that are not known.
        self.states = torch.zeros(n_slots * window + 1, size, dtype=dtype, device=device)

    @staticmethod
    def count_bytes(n_slots: int, window: int, size: int, dtype: torch.dtype) -> int:
        return n_slots * window * size * dtype.itemsize

    def take_slot(self, name: str) -> None:
        """Gives a sequence a slot, of which no state is known."""
        self._slots[name] = slot = self._free.pop()
        self._positions[slot] = UNKNOWN

    def free_slot(self, name: str) -> None:
        """Takes a sequence's slot back, if it has one."""
        if (slot := self._slots.pop(name, None)) is not None:
            self._free.append(slot)

    def slots(self, names: Sequence[str]) -> IntArray:
        """[sequences], NOBODY for those that have none"""
        return np.array([self._slots.get(name, NOBODY) for name in names], dtype=np.int64)

    def knows(self, name: str, position: int) -> bool:
        """Whether the state of a sequence's token at a position can be read. That before the first
        token is of zeros."""
        if position < 0:
            return True
        slot = self._slots.get(name, NOBODY)
        return slot != NOBODY and bool(self._positions[slot, position % self._window] == position)

    def before(self, slots: IntArray, positions: IntArray) -> Tensor:
        """The states of the tokens before those at `positions` of some sequences, both [sequences];
        zeros where they are not known. [sequences, size]"""
        rows = self.rows_before(slots, positions)
        return self.states.index_select(0, to_device(rows, self._device))

    def rows_before(self, slots: IntArray, positions: IntArray) -> IntArray:
        """Rows of `states`: those that `before` gives. [sequences]"""
        at = positions - 1
        rows = slots * self._window + at % self._window
        # A slot of NOBODY finds another's, and has none.
        is_known = (self._positions.ravel()[rows] == at) & (slots != NOBODY) & (at >= 0)
        rows[~is_known] = len(self.states) - 1
        return rows

    def row_before(self, name: str, position: int) -> int:
        """The same for a token of one sequence."""
        if position > 0 and self.knows(name, position - 1):
            return self._slots[name] * self._window + (position - 1) % self._window
        return len(self.states) - 1

    def has_room_for(self, slots: IntArray, n_new: IntArray) -> bool:
        """Whether so many new states of each sequence have room beside the one before them."""
        return max(n_new.tolist()) < self._window and NOBODY not in slots.tolist()

    def place(self, slots: IntArray, ends: IntArray, n_new: IntArray) -> "Places":
        """Finds places for the states of the last `n_new` tokens of some sequences that have `ends`
        tokens by then, all of which have room. All [sequences]. They are to be written there."""
        # Written out: there are so few that NumPy takes longer.
        places, positions, window = Places([], [], []), list[int](), self._window
        for slot, end, n in zip(slots.tolist(), ends.tolist(), n_new.tolist(), strict=True):
            begin, first = end - n, slot * window
            before = first + (begin - 1) % window
            if begin == 0 or self._positions[slot, (begin - 1) % window] != begin - 1:
                before = len(self.states) - 1
            places.before.append(before)
            places.from_step.append(before)
            for position in range(begin + 1, end):
                places.before.append(first + (position - 1) % window)
                places.from_step.append(-len(places.from_step))
            places.rows.extend(first + position % window for position in range(begin, end))
            positions.extend(range(begin, end))
        self._positions.ravel()[places.rows] = positions
        return places

    def keep(self, slots: IntArray, ends: IntArray, n_new: IntArray, states: Tensor) -> None:
        """Keeps the states [tokens, size] of the last `n_new` tokens of some sequences that have
        `ends` tokens by then, one sequence after the other. All [sequences]"""
        n = np.minimum(n_new, self._window)
        n[slots == NOBODY] = 0
        rows = np.repeat(np.arange(len(n)), n)
        back = np.repeat(n.cumsum(), n) - np.arange(len(rows))  # from the end of its sequence
        positions = ends[rows] - back
        places = slots[rows] * self._window + positions % self._window
        self._positions.ravel()[places] = positions
        kept = to_device(n_new.cumsum()[rows] - back, self._device)
        self.states.index_copy_(0, to_device(places, self._device), states.index_select(0, kept))


@dataclass(frozen=True, slots=True)
class Places:
    """Rows of all carried states, for each token of a step. All [tokens]

    rows: where its own state is to be. before: where that of the token before it is by then.
    from_step: the same, and -n in place of the row of the step's token number n - 1.
    """

    rows: list[int]
    before: list[int]
    from_step: list[int]
