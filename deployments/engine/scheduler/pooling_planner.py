"""Plans the steps of an encoder, which has pooling tasks alone: as many as fit into a budget.

A prompt is not cut: its tokens attend to those behind them. `planner.Planner` has the pooling tasks
of decoders, beside all others.
"""

from collections.abc import Sequence
from typing import Protocol

from deployments.engine.tasks.batch import NO_ROWS, Ahead, Batch
from deployments.engine.tasks.task import Task
from kv.cache import KVCache


class StepPlanner(Protocol):
    """The methods that the scheduler and the launcher call; `planner.Planner` says what is what."""

    def plan(self, tasks: Sequence[Task], budget: int) -> Batch: ...

    def plan_next(self, tasks: Sequence[Task], budget: int, ahead: Ahead) -> Batch: ...

    def give_back(self, batch: Batch) -> None: ...


class PoolingPlanner:
    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def plan(self, tasks: Sequence[Task], budget: int) -> Batch:
        """`tasks` are in order. The first one is computed even if it is over the budget, which may
        have been lowered since it was accepted."""
        chosen: list[Task] = []
        left = budget
        for task in tasks:
            if chosen and task.n_tokens > left:
                continue
            has_page = self._cache.extend(task.id, task.n_tokens)
            assert has_page, "each running task has a page"
            chosen.append(task)
            left -= task.n_tokens
        return Batch(chosen, [task.n_tokens for task in chosen])

    def plan_next(self, tasks: Sequence[Task], budget: int, ahead: Ahead) -> Batch:
        return NO_ROWS  # nothing follows a prompt

    def give_back(self, batch: Batch) -> None:
        """Nothing is planned ahead."""
