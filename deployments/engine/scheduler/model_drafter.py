"""Drafts by a second model, which says with little work what the first one is likely to say.

Its keys and values are in further layers of the same pages. It reads a sequence when it is to draft
for it, so a prompt's first token does not wait for it. What it has read of full pages is kept with
them, for whoever finds them.
"""

from collections.abc import Sequence

from deployments.engine.scheduler.guessing_drafter import GuessingDrafter
from deployments.engine.tasks.task import Task
from kv.cache import KVCache


class ModelDrafter(GuessingDrafter):
    """Drafts by a small model. What constraints leave no choice about is drafted where the model
    drafts nothing, too."""

    def draft(self, decodes: Sequence[Task], n_other: int, budget: int) -> None:
        n_rows = len(decodes)
        room = min(self._max_step_tokens, budget) - n_other - n_rows
        self._guess_for(decodes, n_rows, room)
        left = [task for task in decodes if task.constraint.is_masking and not task.n_drafted]
        n_beside = n_rows - len(left) + sum(task.n_drafted for task in decodes)
        self._ngrams.draft(left, n_other + n_beside, budget)


class ReadPages:
    """Which pages hold the draft model's keys and values of all of their tokens, by their hashes: a
    page that holds other tokens by now has another one."""

    def __init__(self, cache: KVCache, groups: Sequence[int]) -> None:
        self._cache = cache
        self._groups = groups
        self._hashes: dict[int, bytes] = {}  # by page of the first group

    def first_unread(self, task: Task) -> int:
        size = self._cache.shape.page_size
        known = min(task.drafts.n_read, task.n_computed)
        if known == 0:
            n = 0
            for n, page_hash in enumerate(task.hash_pages(size)[: task.n_computed // size], 1):
                if self._hashes.get(self._page(task, n - 1)) != page_hash:
                    n -= 1
                    break
            known = task.drafts.n_read = n * size
        return max(known, *(self._cache.first_stored(task.id, group) for group in self._groups))

    def can_guess(self, task: Task) -> bool:
        return True

    def mark(self, task: Task, begin: int, end: int) -> None:
        size = self._cache.shape.page_size
        first, behind = begin // size, min(end, task.n_computed) // size
        if first < behind:
            for index, page_hash in enumerate(task.hash_pages(size)[first:behind], first):
                self._hashes[self._page(task, index)] = page_hash

    def _page(self, task: Task, index: int) -> int:
        return self._cache.table.page(task.id, index, self._groups[0])
