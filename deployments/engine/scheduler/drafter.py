"""Speculative decoding without a second model: drafts what a sequence has said before.

A step computes the logits behind every drafted token, and draws behind each. What is drawn depends
on seed and position alone: as long as it is what was drafted, the next draw stands. So drafts
change how many steps a sequence takes, and none of its tokens. Saxena, Prompt Lookup Decoding, 2023
"""

from collections.abc import Sequence

from deployments.engine.sampling.rows import is_blind
from deployments.engine.tasks.ngram_drafts import Drafts
from deployments.engine.tasks.task import Task


class Drafter:
    """Writes up to `most` tokens behind the known ones of a task."""

    def __init__(self, most: int, most_in_step: int) -> None:
        """In steps of more than `most_in_step` tokens drafts cost more than they save."""
        self._most = most
        self._most_in_step = most_in_step

    def suits(self, n_rows: int) -> bool:
        """Whether anything may be drafted in a step of so many rows."""
        return n_rows < self._most_in_step

    def draft(self, decodes: Sequence[Task], n_beside: int, budget: int) -> None:
        """For tasks whose last known token alone is uncomputed, in a step of `n_beside` other
        tokens and `budget` in all."""
        left = min(self._most_in_step, budget) - n_beside - len(decodes)
        for place, task in enumerate(decodes):
            share = left // (len(decodes) - place)
            most = min(self._most, share, task.n_limit - task.n_tokens - 1)
            if most > 0 and is_blind(task):
                left -= self._write(task, most)

    def _write(self, task: Task, most: int) -> int:
        if task.drafts is None:
            task.drafts = Drafts()
        found = task.drafts.find(task.tokens, task.n_tokens, most)
        task.tokens[task.n_tokens : task.n_tokens + len(found)] = found
        task.n_drafted = len(found)
        return len(found)
