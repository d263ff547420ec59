"""Speculative decoding: who drafts tokens that a step computes beside the known ones.

A step computes the logits behind every drafted token, and samples behind each. Chance depends on
seed and position alone: as long as a sample is the drafted token, the next sample counts. So drafts
change how many steps a sequence takes, and none of its tokens.
"""

from collections.abc import Iterator, Sequence

from deployments.engine.sampling.rows import can_draft
from deployments.engine.tasks.task import Task


class Drafter:
    """Writes drafted tokens behind the known ones of tasks; this one drafts nothing. One thread
    uses it."""

    def start(self) -> None:
        """Prepares to draft. To be called first, on that thread. Raises whatever fails."""

    def can_draft(self, n_rows: int) -> bool:
        """Whether anything may be drafted in a step of so many rows."""
        return False

    def draft(self, decodes: Sequence[Task], n_other: int, budget: int) -> None:
        """Drafts for tasks of which the last known token alone is not computed.

        The step has `n_other` tokens of other rows, and room for `budget` tokens in all.
        """

    def observe(self, n_tokens: int, n_drafted: int, n_prompt: int, seconds: float) -> None:
        """A step took so long with all that was done for it: `n_tokens` tokens, of which so many
        were drafted, and `n_prompt` tokens of prompts."""


NO_DRAFTER = Drafter()


class NgramDrafter(Drafter):
    """Drafts what followed the same tokens before, and what a constraint leaves no choice about.
    Saxena, Prompt Lookup Decoding, 2023"""

    def __init__(self, max_per_task: int, max_step_tokens: int) -> None:
        """`max_per_task` tokens are drafted for a task. In steps of more than `max_step_tokens`
        tokens, drafts included, drafts cost more than they save."""
        self._max_per_task = max_per_task
        self._max_step_tokens = max_step_tokens

    def can_draft(self, n_rows: int) -> bool:
        return n_rows < self._max_step_tokens

    def draft(
        self, decodes: Sequence[Task], n_other: int, budget: int, n_most: int | None = None
    ) -> None:
        """`n_most` tokens for a task, where that is less than it drafts else."""
        n_most = self._max_per_task if n_most is None else min(n_most, self._max_per_task)
        room = min(self._max_step_tokens, budget) - n_other - len(decodes)
        for task, n_max in shares(decodes, room, n_most):
            task.draft(task.drafts.propose(task.tokens, task.n_tokens, n_max, task.constraint))


def shares(decodes: Sequence[Task], room: int, max_per_task: int) -> Iterator[tuple[Task, int]]:
    """The tasks that may be drafted for, and how many tokens for each. What one has not used when
    the next one is asked for is for the others."""
    left = room
    for i, task in enumerate(decodes):
        share = left // (len(decodes) - i)
        n_max = min(max_per_task, share, task.n_limit - task.n_tokens - 1)
        if n_max > 0 and can_draft(task):
            yield task, n_max
            left -= task.n_drafted
