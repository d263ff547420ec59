"""Decides behind which pages the state of a sequence is kept, for models whose layers keep one.

A prefix can only be hit where there is a checkpoint. Chunks of a prompt end there, because a state
stands behind the last token of a step.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from deployments.engine.tasks.task import Task
from kv.cache import KVCache


class CheckpointBoundaries:
    """The positions of a task's checkpoints: behind the prompt's last page that another prompt may
    share, before messages, where others with the same beginning went on differently, and every so
    many tokens."""

    def __init__(self, cache: KVCache, min_step: int) -> None:
        """`min_step` tokens lie between two checkpoints of a long sequence."""
        self._cache = cache
        self._page_size = page_size = cache.shape.page_size
        self._step = max(1, min_step // page_size) * page_size

    def find_branch(self, task: Task, running: Iterable[Task]) -> None:
        """Notes how much of an admitted task other tasks have computed, beyond what it was given:
        there is no state behind that yet. Running tasks keep theirs where it parts from them."""
        if self._cache.checkpoints is None:
            return
        hashes = task.usable_pages(self._page_size)[: (task.n_tokens - 1) // self._page_size]
        task.branches.add(self._cache.find(hashes) * self._page_size)
        for other in [candidate for candidate in running if candidate.n_uncomputed > 1]:
            common = _n_common(hashes, other.hash_pages(self._page_size)) * self._page_size
            if common > other.n_computed:
                other.branches.add(common)

    def next_boundary(self, task: Task, n_before: int) -> int | None:
        """The first one behind `n_before` tokens of the task, as a number of tokens. None: there is
        none before its last known token."""
        if self._cache.checkpoints is None:
            return None
        every = (n_before // self._step + 1) * self._step
        boundaries = (*task.branches, *self._of_prompt(task), every)
        return min(
            (boundary for boundary in boundaries if n_before < boundary < task.n_tokens),
            default=None,
        )

    def commit(self, task: Task) -> None:
        """Keeps the state behind the task's computed tokens, if they end at a boundary."""
        n = task.n_computed
        if self._cache.checkpoints is None or n % self._page_size:
            return
        if n in task.branches or n in self._of_prompt(task) or n % self._step == 0:
            self._cache.checkpoints.save(task.id)

    def _of_prompt(self, task: Task) -> Sequence[int]:
        """The same prompt may come again, of which one token at least has to be computed, or its
        beginning with other messages."""
        ends = task.n_prompt - 1, *task.request.message_starts
        return [end // self._page_size * self._page_size for end in ends]


def _n_common(hashes: Sequence[bytes], others: Sequence[bytes]) -> int:
    """Leading pages that two sequences share. A hash covers those before it."""
    shorter = min(len(hashes), len(others))
    return bisect_left(range(shorter), True, key=lambda index: hashes[index] != others[index])
