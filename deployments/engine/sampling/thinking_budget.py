"""Ends a thought whose budget is spent, or that somebody wants to be over: its end is all that may
be drawn, whatever was banned.

Only a grammar can put that off, as long as it has the thought go on.
"""

from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import NEVER, SamplingStrategy
from deployments.engine.tasks.task import Task
from deployments.engine.tasks.thinking_tracker import Thought


class ThinkingStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        tasks = rows.tasks
        for row in [row for row in rows.chosen if tasks[row].request.thinking is not None]:
            task = tasks[row]
            forced = _forced(task)
            if forced is not None and (task.grammar is None or task.grammar.allows(forced)):
                logits[row] = NEVER
                logits[row, forced] = 0


def _forced(task: Task) -> int | None:
    if task.thought is None:
        assert task.request.thinking is not None
        task.thought = Thought(task.request.thinking)
    first_unread = task.n_prompt + task.thought.n_read
    task.thought.read(task.tokens[first_unread : task.n_tokens].tolist())
    return task.thought.forced(task.thought_over)
