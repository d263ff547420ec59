"""The work of a step: rows of (task, n tokens). The scheduler makes it, the runner reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deployments.engine.tasks.task import Task


class Progress(NamedTuple):
    """Tokens that a step in progress computes and samples for a task."""

    n_computed: int
    n_sampled: int = 0  # 1, or 0 where the task's prompt goes on behind that step


NO_PROGRESS = Progress(0)
Ahead = Mapping[Task, Progress]
NOTHING_AHEAD: Ahead = {}


def start_of(task: Task, ahead: Ahead) -> int:
    """Tokens of a task that are computed before its next row."""
    progress = ahead.get(task)
    return task.n_computed if progress is None else task.n_computed + progress.n_computed


@dataclass(frozen=True, slots=True)
class Batch:
    """Row i computes the next `new_len[i]` uncomputed tokens of `tasks[i]`, drafted ones included.

    Rows are numbered from 0 in the order of `tasks`.

    ahead: what the step in progress will have done for the tasks before this step.
    starts: tokens of each row's task that are computed before it. [rows]
    n_known: tokens of each row's task when it begins: its prompt's, and those sampled. [rows]
    """

    tasks: Sequence[Task]
    new_len: Sequence[int]
    ahead: Ahead = field(default_factory=dict)
    starts: Sequence[int] = field(init=False)
    n_known: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        starts = [task.n_computed for task in self.tasks]
        n_known = [task.n_tokens for task in self.tasks]
        if self.ahead:
            done = [self.ahead.get(task, NO_PROGRESS) for task in self.tasks]
            starts = [n + step.n_computed for n, step in zip(starts, done, strict=True)]
            n_known = [n + step.n_sampled for n, step in zip(n_known, done, strict=True)]
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "n_known", n_known)

    def n_unknown(self) -> list[int]:
        """Tokens of each row that the host does not know: the step in progress samples them."""
        return [self.ahead.get(task, NO_PROGRESS).n_sampled for task in self.tasks]

    @property
    def n_prompt_tokens(self) -> int:
        """Tokens of rows that compute more than a task's newest token and its drafts."""
        paired = zip(self.tasks, self.new_len, strict=True)
        return sum(n for task, n in paired if n != 1 + task.n_drafted)

    def sampled_rows(self) -> list[int]:
        """Rows that reach their task's last known token: the next one is sampled. A row with d
        drafted tokens stands there 1 + d times, since one is sampled behind each of them."""
        columns = zip(self.tasks, self.starts, self.new_len, self.n_known, strict=True)
        return [
            row
            for row, (task, start, n, n_known) in enumerate(columns)
            if start + n >= n_known and n_known < task.n_limit
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


NO_ROWS = Batch((), ())
