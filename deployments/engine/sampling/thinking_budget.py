"""Ends thinking whose budget is spent, or that a client has ended: no other token than those of its
end mark can be sampled, whatever was banned.

Only a grammar can put that off, as long as it does not allow the mark.
"""

from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BANNED, BaseSamplingStrategy
from deployments.engine.tasks.task import Task
from deployments.engine.tasks.thinking_tracker import ThinkingTracker


class ThinkingStrategy(BaseSamplingStrategy):
    """Bans every token but the next one of the end mark."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        tasks = rows.tasks
        for row in [row for row in rows.selected if tasks[row].request.thinking is not None]:
            task, n_drafted = tasks[row], rows.n_drafted_before(row)
            forced = _forced(task, n_drafted)
            grammar = None if rows.is_guess else task.active_grammar
            if forced is not None and (grammar is None or grammar.allows(forced, n_drafted)):
                logits[row] = BANNED
                logits[row, forced] = 0


def _forced(task: Task, n_drafted: int) -> int | None:
    """The only token that may come behind the task's first `n_drafted` drafted ones."""
    state, n = task.sampling_state, task.n_tokens
    if state.thinking is None:
        assert task.request.thinking is not None
        state.thinking = ThinkingTracker(task.request.thinking)
    first_unread = task.n_prompt + state.thinking.n_read
    state.thinking.read(task.tokens[first_unread:n].tolist())
    ahead = state.thinking.copy() if n_drafted else state.thinking
    ahead.read(task.tokens[n : n + n_drafted].tolist())
    return ahead.forced(state.is_thinking_over)
