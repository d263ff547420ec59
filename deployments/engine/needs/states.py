"""The need of states, for models whose layers keep one in the place of keys.

A row reads the state behind its task's last token, and leaves one behind its own. Here is decided
behind which pages it is kept: a prefix can only be hit where there is a checkpoint. Chunks of a
prompt end there, because a state stands behind the last token of a step.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from deployments.engine.forward.inputs import StepInputs
from deployments.engine.needs.need import RowNeed
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.task import Task
from kv.cache import KVCache


class StateNeed(RowNeed):
    """The checkpoints of a task are behind the prompt's last page that another prompt may share,
    before messages, where others with the same beginning went on differently, and every so many
    tokens."""

    def __init__(self, cache: KVCache, min_step: int) -> None:
        """`min_step` tokens lie between two checkpoints of a long sequence."""
        assert cache.states is not None, "its layers keep states"
        self._cache, self._states = cache, cache.states
        self._keeps_checkpoints = cache.shape.max_checkpoints > 0
        self._page_size = page_size = cache.shape.page_size
        self._step = max(1, min_step // page_size) * page_size

    def join(self, task: Task, running: Iterable[Task]) -> None:
        """Notes how much of the task other tasks have computed, beyond what it was given: there is
        no state behind that yet. Running tasks keep theirs where it parts from them."""
        if not self._keeps_checkpoints:
            return
        hashes = task.usable_pages(self._page_size)[: (task.n_tokens - 1) // self._page_size]
        task.branches.add(self._cache.find(hashes) * self._page_size)
        for other in [candidate for candidate in running if candidate.n_uncomputed > 1]:
            common = _n_common(hashes, other.hash_pages(self._page_size)) * self._page_size
            if common > other.n_computed:
                other.branches.add(common)

    def most(self, task: Task, start: int, n: int) -> int:
        """A chunk ends at the next boundary."""
        boundary = self._next_boundary(task, start)
        return n if boundary is None else min(n, boundary - start)

    def resumable(self, task: Task, start: int) -> Sequence[int]:
        """Another task can go on at boundaries alone, of which a chunk reaches one at most."""
        reached = {self._next_boundary(task, n) for n in (task.n_computed, start)}
        return [end for end in reached if end is not None]

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        """Adds the slots that rows read and write."""
        ids = [task.id for task in batch.tasks]
        committed = np.array([task.n_computed for task in batch.tasks], dtype=np.int64)
        n_drafted = [task.n_drafted for task in batch.tasks]
        slots = self._states.take(ids, step.total_len, step.new_len, committed, n_drafted)
        return replace(step, state_slots=slots)

    def commit(self, task: Task) -> None:
        """Keeps the state behind the task's computed tokens, if they end at a boundary."""
        n = task.n_computed
        if not self._keeps_checkpoints or n % self._page_size:
            return
        if n in task.branches or n in self._of_prompt(task) or n % self._step == 0:
            self._states.save(task.id)

    def stats(self) -> Mapping[str, int]:
        states = self._states
        return {
            "checkpoints": states.n_checkpoints,
            "checkpoint_bytes": states.n_checkpoints * self._cache.shape.state_bytes,
            "checkpoints_saved": states.n_saved,
            "checkpoints_restored": states.n_restored,
        }

    def _next_boundary(self, task: Task, n_before: int) -> int | None:
        """The first one behind `n_before` tokens of the task, as a number of tokens. None: there is
        none before its last known token."""
        if not self._keeps_checkpoints:
            return None
        every = (n_before // self._step + 1) * self._step
        boundaries = (*task.branches, *self._of_prompt(task), every)
        return min(
            (boundary for boundary in boundaries if n_before < boundary < task.n_tokens),
            default=None,
        )

    def _of_prompt(self, task: Task) -> Sequence[int]:
        """The same prompt may come again, of which one token at least has to be computed, or its
        beginning with other messages."""
        ends = task.n_prompt - 1, *task.request.message_starts
        return [end // self._page_size * self._page_size for end in ends]


def _n_common(hashes: Sequence[bytes], others: Sequence[bytes]) -> int:
    """Leading pages that two sequences share. A hash covers those before it."""
    shorter = min(len(hashes), len(others))
    return bisect_left(range(shorter), True, key=lambda index: hashes[index] != others[index])
