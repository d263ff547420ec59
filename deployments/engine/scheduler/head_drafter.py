"""Drafts by a head that reads hidden states of the model.

It has read every token that the model has computed, in the same steps. So it begins with the newest
token, whatever was drafted before.
"""

from collections.abc import Sequence

from deployments.engine.forward.draft_heads.carried_states import CarriedStates
from deployments.engine.scheduler.guessing_drafter import GuessingDrafter
from deployments.engine.tasks.task import Task


class HeadDrafter(GuessingDrafter):
    """Drafts what followed the same tokens before, and what a constraint leaves no choice about.
    Where there is neither the head guesses."""

    def draft(self, decodes: Sequence[Task], n_other: int, budget: int) -> None:
        n_rows = len(decodes)
        if self._policy.needs_plain_step(n_rows):
            return
        n_max = self._policy.longest_ngram(n_rows, self._max_per_task)
        self._ngrams.draft(decodes, n_other, budget, n_max)
        n_drafted = sum(task.n_drafted for task in decodes)
        room = min(self._max_step_tokens, budget) - n_other - n_rows - n_drafted
        self._guess_for([task for task in decodes if not task.n_drafted], n_rows, room)


class ReadInSteps:
    """All tokens before the newest one are read. What follows it can be said where the state before
    it is known: not before the first step behind pages that were found."""

    def __init__(self, carried: CarriedStates) -> None:
        self._carried = carried

    def first_unread(self, task: Task) -> int:
        return task.n_tokens - 1

    def mark(self, task: Task, begin: int, end: int) -> None:
        pass

    def can_guess(self, task: Task) -> bool:
        return self._carried.knows(task.id, task.n_tokens - 2)
