"""Decides what follows a failed step: smaller ones, until a row has failed alone.

Nothing of a failed step is trusted. One that ran out of memory lowers the budget of those after it.
"""

from collections.abc import Sequence

from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.task import Task

# When so many tasks have failed alone and no step succeeded in between, the engine may be at fault.
MAX_FAILED_ALONE = 3
# Steps that succeed before the budget, lowered for want of memory, is doubled.
STEPS_TO_DOUBLE = 64


class Recovery:
    """Tasks of failed steps wait here for their trials: smaller steps, before all other ones."""

    def __init__(self, max_tokens: int) -> None:
        self.budget = max_tokens  # of tokens in a step
        self._max_tokens = max_tokens
        self._budget_before = max_tokens  # when the trials began
        self._n_succeeded = 0  # steps since the budget changed
        self._trials: list[list[Task]] = []  # the last one is next
        self._on_trial = False
        self._n_alone = 0
        self._n_async_paused = 0  # steps during which none is launched ahead

    @property
    def is_trying(self) -> bool:
        """Whether steps are chosen by what failed before."""
        return self._on_trial or bool(self._trials)

    @property
    def allows_async(self) -> bool:
        """Whether a step may be launched before the last one is known to have succeeded."""
        return not self.is_trying and self._n_async_paused == 0

    def pause_async(self) -> None:
        """A step that was launched ahead has failed; launched by itself it may not."""
        self._n_async_paused = STEPS_TO_DOUBLE

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may be the engine that fails, and not the tasks."""
        return self._n_alone >= MAX_FAILED_ALONE

    def choose(self, running: Sequence[Task]) -> Sequence[Task]:
        """The tasks that the next step is for."""
        here = {*running} if self._trials else ()
        while self._trials:
            tasks = [task for task in self._trials.pop() if task in here]
            if tasks:
                self._on_trial = True
                return tasks
        self._on_trial = False
        return running

    def succeed(self) -> None:
        self._n_alone = 0
        self._n_async_paused = max(0, self._n_async_paused - 1)
        self._n_succeeded += 1
        if self.budget < self._max_tokens and self._n_succeeded >= STEPS_TO_DOUBLE:
            self._set_budget(min(2 * self.budget, self._max_tokens))

    def clear_doubt(self) -> None:
        """The engine was found to work."""
        self._n_alone = 0

    def fail(self, batch: Batch, *, out_of_memory: bool) -> bool:
        """Whether the rows are tried again in smaller steps; only a single one is given up."""
        if not self.is_trying:
            self._budget_before = self.budget
        n_tokens = sum(batch.new_len)
        can_be_smaller = n_tokens <= self.budget  # else it has what can't be cut
        if out_of_memory:
            self._set_budget(max(n_tokens // 2, 1))
        tasks = [*batch.tasks]
        half = len(tasks) // 2
        if half:
            self._trials += [tasks[half:], tasks[:half]]
        elif out_of_memory and can_be_smaller and (n_tokens > 1 or not self._on_trial):
            self._trials.append(tasks)  # fewer tokens, or with the memory of the others' rows
        else:
            self._give_up()
            return False
        return True

    def _give_up(self) -> None:
        self._n_alone += 1
        self._set_budget(self._budget_before)  # it was that row, and not the size of the steps

    def _set_budget(self, n_tokens: int) -> None:
        self.budget = n_tokens
        self._n_succeeded = 0
