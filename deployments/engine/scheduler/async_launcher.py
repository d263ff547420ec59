"""Has steps computed, and the next one begun before this one's tokens are known where it may be."""

import logging

from deployments.engine.runner import Flight, Outcome, Runner
from deployments.engine.scheduler.planner import Planner
from deployments.engine.scheduler.recovery import Recovery
from deployments.engine.tasks.batch import Rows
from kv.cache import KVCache

log = logging.getLogger(__name__)


class Launcher:
    """`flight` is the step that was begun so, to be flown next."""

    def __init__(
        self, runner: Runner, cache: KVCache, planner: Planner, recovery: Recovery, is_ahead: bool
    ) -> None:
        self._runner = runner
        self._cache = cache
        self._planner = planner
        self._recovery = recovery
        self._is_ahead = is_ahead
        self.flight: Flight | None = None

    def fly(self, rows: Rows, n_running: int) -> Outcome:
        """What the rows, those of `flight` if there is one, came to; raises what their step does.

        Of `n_running` tasks all must be in a step for another one to follow it.
        """
        flight, self.flight = self.flight or self._runner.launch(rows), None
        following = self._launch_behind(flight, n_running)
        outcome = flight.land()
        self.flight = following
        return outcome

    def _launch_behind(self, flight: Flight, n_running: int) -> Flight | None:
        if not (self._is_ahead and flight.all_draw_one and self._recovery.trusts):
            return None
        places = self._planner.plan_behind(flight.rows.tasks, n_running)
        if not places:
            return None
        try:
            return self._runner.launch_behind(flight, places)
        except Exception as error:  # it will fail or not on its own account when its turn comes
            log.warning("steps are not launched ahead for a while: %s", error)
            self._recovery.distrust()
            for task in [flight.rows.tasks[place] for place in places]:
                self._cache.retract(task.id, task.n_tokens)
            return None
