"""Runs steps. Where it can, it launches the next step before the tokens of this one are known."""

import logging
from collections.abc import Callable, Sequence

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
        choose: Callable[[Sequence[Task], Ahead], Sequence[Task]],
        is_async: bool,
    ) -> None:
        """`choose` is as of `Need`, of all needs."""
        self._runner = runner
        self._planner = planner
        self._recovery = recovery
        self._choose = choose
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
        if any(task.needs_results for task in running):
            return None
        ahead = step.progress()
        tasks = self._choose([task for task in running if _goes_on(task, ahead)], ahead)
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


def _goes_on(task: Task, ahead: Ahead) -> bool:
    """Whether something is left to compute for a task behind the step in progress."""
    progress = ahead.get(task)
    if progress is None:
        return True
    if progress.n_sampled:
        return task.n_tokens + progress.n_sampled < task.n_limit
    return task.n_computed + progress.n_computed < task.n_tokens
