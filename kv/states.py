"""Which slots hold the recurrent state of a task, for layers that keep a state and no keys.

A task has two slots. A step reads the one whose state stands behind the task's last computed token,
and writes the other one. A step that failed is so undone by being computed again: what it has
written stands behind tokens that are not computed.
"""

from collections.abc import Sequence

import numpy as np

from kv.arrays import IntArray

NO_STATE = -1  # the slot that a task reads which has computed nothing yet


class StateSlots:
    """The slots of up to `max_tasks` tasks."""

    def __init__(self, max_tasks: int) -> None:
        self._free = list(range(2 * max_tasks - 2, -2, -2))  # the first slot of each pair
        self._pairs: dict[str, int] = {}
        # By slot: behind how many tokens its state stands.
        self._n_tokens = np.full(2 * max_tasks, NO_STATE, dtype=np.int64)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._pairs

    def insert(self, task_id: str) -> None:
        """A new task, without a state. Asserts that it is new and that slots are free."""
        assert task_id not in self._pairs, f"task {task_id} has a state already"
        assert self._free, "more tasks than slots"
        self._pairs[task_id] = self._free.pop()

    def remove(self, task_id: str) -> None:
        """Forgets a task and its state. KeyError if it is unknown."""
        first = self._pairs.pop(task_id)
        self._n_tokens[first : first + 2] = NO_STATE
        self._free.append(first)

    def take(self, task_ids: Sequence[str], total_len: IntArray, new_len: IntArray) -> IntArray:
        """Slots for a step that computes the last `new_len` of `total_len` tokens [tasks] of each
        task. [tasks, 2]: one to read, which is NO_STATE for a task's first tokens, one to write.

        Asserts that the state behind the tokens before the step is there.
        """
        slots = np.empty((len(task_ids), 2), dtype=np.int64)
        for row, (task_id, total, new) in enumerate(
            zip(task_ids, total_len.tolist(), new_len.tolist(), strict=True)
        ):
            first, before = self._pairs[task_id], total - new
            read = NO_STATE
            if before:
                found = [slot for slot in (first, first + 1) if self._n_tokens[slot] == before]
                assert found, f"task {task_id} has no state behind {before} tokens"
                read = found[0]
            written = first + 1 if read == first else first
            self._n_tokens[written] = total
            slots[row] = read, written
        return slots

    def check(self) -> None:
        """Asserts that each pair of slots is free or of one task."""
        taken = [*self._pairs.values(), *self._free]
        assert sorted(taken) == [*range(0, len(self._n_tokens), 2)], "slots are lost or taken twice"
        for first in self._free:
            assert (self._n_tokens[first : first + 2] == NO_STATE).all(), "a free slot has a state"
