"""Speculative decoding without a second model: drafts what followed the same tokens before, and
what a grammar leaves no choice about.

A step computes the logits behind every drafted token, and samples behind each. Chance depends on
seed and position alone: as long as a sample is the drafted token, the next sample counts. So drafts
change how many steps a sequence takes, and none of its tokens. Saxena, Prompt Lookup Decoding, 2023
"""

from collections.abc import Sequence

from deployments.engine.sampling.rows import can_draft
from deployments.engine.tasks.drafts import Drafts
from deployments.engine.tasks.task import Task


class Drafter:
    """Writes drafted tokens behind the known ones of tasks."""

    def __init__(self, max_per_task: int, max_step_tokens: int) -> None:
        """`max_per_task` tokens are drafted for a task. In steps of more than `max_step_tokens`
        tokens, drafts included, drafts cost more than they save."""
        self._max_per_task = max_per_task
        self._max_step_tokens = max_step_tokens

    def can_draft(self, n_rows: int) -> bool:
        """Whether anything may be drafted in a step of so many rows."""
        return n_rows < self._max_step_tokens

    def draft(self, decodes: Sequence[Task], n_other: int, budget: int) -> None:
        """Drafts for tasks of which the last known token alone is not computed.

        The step has `n_other` tokens of other rows, and room for `budget` tokens in all.
        """
        left = min(self._max_step_tokens, budget) - n_other - len(decodes)
        for i, task in enumerate(decodes):
            share = left // (len(decodes) - i)
            n_max = min(self._max_per_task, share, task.n_limit - task.n_tokens - 1)
            if n_max > 0 and can_draft(task):
                left -= self._write(task, n_max)

    def _write(self, task: Task, n_max: int) -> int:
        if task.drafts is None:
            task.drafts = Drafts()
        drafted = task.drafts.propose(
            task.tokens, task.n_tokens, n_max, task.active_grammar, task.end_token_ids
        )
        task.tokens[task.n_tokens : task.n_tokens + len(drafted)] = drafted
        task.n_drafted = len(drafted)
        return len(drafted)
