"""The work of a step: rows of (task, n tokens). The scheduler makes it, the runner reads it."""

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.engine.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Batch:
    """Row i computes the next `new_len[i]` uncomputed tokens of `tasks[i]`, drafted ones included.

    Rows are numbered from 0 in the order of `tasks`.
    """

    tasks: Sequence[Task]
    new_len: Sequence[int]

    @property
    def n_prompt_tokens(self) -> int:
        """Tokens of rows that compute more than a task's newest token and its drafts."""
        paired = zip(self.tasks, self.new_len, strict=True)
        return sum(n for task, n in paired if n != 1 + task.n_drafted)

    def sampled_rows(self) -> list[int]:
        """Rows that reach their task's last known token: the next one is sampled. A row with d
        drafted tokens stands there 1 + d times, since one is sampled behind each of them."""
        return [
            row
            for row, (task, n) in enumerate(zip(self.tasks, self.new_len, strict=True))
            if n >= task.n_tokens + task.n_placeholders - task.n_computed - task.n_in_step
            and task.n_tokens + task.n_placeholders < task.n_limit
            for _ in range(1 + task.n_drafted)
        ]

    def without_ended(self) -> "Batch":
        """The rows whose tasks have not ended while the step was in progress."""
        left = [row for row, task in enumerate(self.tasks) if not task.has_ended]
        return Batch([self.tasks[row] for row in left], [self.new_len[row] for row in left])

    def n_scored(self) -> dict[int, int]:
        """Maps each row to how many of its positions have a next token of the prompt whose
        log-probability is asked for and not known. Rows without such positions are left out."""
        rows = [
            row
            for row, task in enumerate(self.tasks)
            if task.request.prompt_logprobs is not None and task.n_unscored
        ]
        # After a preemption some positions are computed again that were scored before.
        known = {row: len(self.tasks[row].prompt_logprobs) for row in rows}
        n_new = {
            row: min(self.tasks[row].n_computed + self.new_len[row] - n, self.tasks[row].n_unscored)
            for row, n in known.items()
        }
        return {row: n for row, n in n_new.items() if n > 0}
