"""Runs steps. Where it can, it launches the next step before the tokens of this one are known."""

import logging
from collections.abc import Callable, Sequence

from deployments.engine.needs.need import Need
from deployments.engine.parallel.ranks import RanksLostError
from deployments.engine.pending_step import PendingStep
from deployments.engine.runner import Runner
from deployments.engine.scheduler.pooling_planner import StepPlanner
from deployments.engine.scheduler.recovery import Recovery
from deployments.engine.step_result import StepResult
from deployments.engine.tasks.batch import Ahead, Batch
from deployments.engine.tasks.task import Task

log = logging.getLogger(__name__)


class AsyncLauncher:
    """`pending` is the step that was launched so, and is to be run next."""

    def __init__(
        self,
        runner: Runner,
        planner: StepPlanner,
        recovery: Recovery,
        can_go_on: Callable[[Task], bool],
        needs: Sequence[Need],
        is_async: bool,
    ) -> None:
        """`can_go_on` is as `Committer.can_go_on`, for tasks that no step in progress has."""
        self._runner = runner
        self._planner = planner
        self._recovery = recovery
        self._can_go_on = can_go_on
        self._needs = needs
        self._is_async = is_async
        self.pending: PendingStep | None = None

    def run(self, batch: Batch, running: Sequence[Task]) -> StepResult:
        """The result of `batch`, which is that of `pending` if there is such a step.

        The next step is launched for the tasks of `running` that can go on. Raises whatever the
        step raises; `pending` is None then.
        """
        pending, self.pending = self.pending, None
        step = self._runner.launch(batch) if pending is None else self._runner.settle(pending)
        following = self._launch_next(step, running)
        try:
            result = step.result()
        except Exception:
            if following is not None:
                self._planner.give_back(following.batch)
            raise
        self.pending = following
        return result

    def _launch_next(self, step: PendingStep, running: Sequence[Task]) -> PendingStep | None:
        if not (running and self._is_async and step.is_certain and self._recovery.allows_async):
            return None
        # What is scored or pooled is known when the step's result is.
        if any(task.n_unscored or task.pooled is not None for task in running):
            return None
        ahead = step.progress()
        tasks = [task for task in running if self._is_next(task, ahead)]
        batch = self._planner.plan_next(tasks, self._recovery.budget, ahead)
        if not batch.tasks:
            return None
        try:
            return self._runner.launch_next(step, batch)
        except RanksLostError:
            raise
        except Exception as error:  # whether the step itself fails shows when it is run
            log.warning("the next step can't be launched ahead; it waits for a while: %s", error)
            self._recovery.pause_async()
            self._planner.give_back(batch)
            return None

    def _is_next(self, task: Task, ahead: Ahead) -> bool:
        """Whether the next step may have a row of the task. A grammar that is slow has to read what
        is sampled before."""
        progress = ahead.get(task)
        if progress is None:
            return self._can_go_on(task)
        if not progress.n_sampled:
            start = task.n_computed + progress.n_computed
            is_last = task.n_tokens - start == 1
            can_go_on = start < task.n_tokens and (task.is_ready or not is_last)
            return can_go_on and all(need.is_ready(task, start) for need in self._needs)
        grammar = task.grammar
        is_deferred = grammar is not None and (grammar.is_slow or grammar.is_busy)
        return task.n_tokens + progress.n_sampled < task.n_limit and not is_deferred
