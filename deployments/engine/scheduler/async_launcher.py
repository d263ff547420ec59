"""Runs steps. Where it can, it launches the next step before the tokens of this one are known."""

import logging
from collections.abc import Sequence

from deployments.engine.runner import PendingStep, Runner, StepResult
from deployments.engine.scheduler.recovery import Recovery
from deployments.engine.scheduler.whole_text_planner import StepPlanner
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.task import Task
from kv.cache import KVCache

log = logging.getLogger(__name__)


class AsyncLauncher:
    """`pending` is the step that was launched so, and is to be run next."""

    def __init__(
        self,
        runner: Runner,
        cache: KVCache,
        planner: StepPlanner,
        recovery: Recovery,
        is_async: bool,
    ) -> None:
        self._runner = runner
        self._cache = cache
        self._planner = planner
        self._recovery = recovery
        self._is_async = is_async
        self.pending: PendingStep | None = None

    def run(self, batch: Batch, running: Sequence[Task]) -> StepResult:
        """The result of `batch`, which is that of `pending` if there is such a step.

        The next step is launched only if all `running` tasks that are ready are in this one. Raises
        whatever the step raises; `pending` is None then.
        """
        pending, self.pending = self.pending, None
        step = self._runner.launch(batch) if pending is None else self._runner.settle(pending)
        following = self._launch_next(step, running)
        result = step.result()
        self.pending = following
        return result

    def _launch_next(self, step: PendingStep, running: Sequence[Task]) -> PendingStep | None:
        if not (self._is_async and step.has_one_sample_per_task and self._recovery.allows_async):
            return None
        if step.stale_rows:
            return None
        n_ready = sum(task.is_ready for task in running)
        rows = self._planner.plan_next(step.batch.tasks, n_ready)
        if not rows:
            return None
        try:
            return self._runner.launch_next(step, rows)
        except Exception as error:  # whether the step itself fails shows when it is run
            log.warning("the next step can't be launched ahead; it waits for a while: %s", error)
            self._recovery.pause_async()
            for task in [step.batch.tasks[row] for row in rows]:
                self._cache.retract(task.id, task.n_tokens)
            return None
