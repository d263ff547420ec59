"""The seam for what a task must have before it runs, or before its next row.

The scheduler and the runner have a list of needs, and know none of them by name. Which of these a
task has is for each need to say: they are asked once a step, and not for each row, but for those
that say where rows end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.contract.events import TokenEvent
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.tasks.batch import Ahead, Batch
from deployments.engine.tasks.task import Task

Failure = tuple[Task, TokenEvent]  # a task that can't go on, and the event that ends it


@dataclass(slots=True)
class Unparked:
    """Tasks that are parked no more: those that wait for their turn again, and those that end."""

    released: list[Task] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)


class Need:
    """One need of all tasks of an engine; by default each task has what it needs.

    All methods but `prepare` are called on the thread of the scheduler.
    """

    def start(self, wake: Callable[[], None]) -> None:
        """Is called once, before all else. `wake` has the scheduler look again, from any thread."""

    # Before a task runs

    def prepare(self, task: Task) -> Callable[[], None] | None:
        """Is called for each task before the scheduler has it, on the thread that accepts it.
        Returns what takes long, to be done on another thread; it may raise Refused."""
        return None

    def admits(self, task: Task) -> bool:
        """Whether a task whose turn it is may run. Else it is to be parked."""
        return True

    def park(self, task: Task) -> None:
        """Keeps a task beside the queue, so that those behind it go on."""
        raise NotImplementedError("a need that admits all tasks parks none")

    @property
    def parked(self) -> Sequence[Task]:
        return ()

    @property
    def can_unpark(self) -> bool:
        """Whether `unpark` may do something now."""
        return False

    def unpark(self) -> Unparked:
        return Unparked()

    # While it runs

    def join(self, task: Task, running: Iterable[Task]) -> None:
        """The task runs from now on beside those of `running`, for the first time or again."""

    def advance(self, running: Iterable[Task]) -> Iterable[Failure]:
        """Works for the next step, which waits for it."""
        return ()

    @property
    def is_behind(self) -> bool:
        """Whether `advance` has left work that it could go on with."""
        return False

    def choose(self, tasks: Sequence[Task], ahead: Ahead) -> Sequence[Task]:
        """Returns those of some running tasks that the next step may have rows of. `ahead` is the
        progress of the step before it, where that is not done. A need wakes the scheduler once
        another one may."""
        return tasks

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        """The inputs of a step, with what the model needs beside tokens and pages."""
        return step

    def begin_sampling(self, batch: Batch, rows: Sequence[int]) -> None:
        """Begins on other threads what it takes to sample behind these rows. The model computes
        meanwhile."""

    def late_rows(self, batch: Batch, rows: Sequence[int]) -> frozenset[int]:
        """Returns those of these rows for which that is not done. Their last tokens are computed
        again."""
        return frozenset()

    # Afterwards

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        """A task has ended, whether it ran or waited; or runs no more, and will again."""

    def stats(self) -> Mapping[str, Any]:
        """Fields of `EngineStats`."""
        return {}

    def flush(self) -> None:
        """No step follows, and no task runs: what outlives the engine is kept, in bounded time."""

    def close(self) -> None:
        """Ends what goes on elsewhere. Waits for no thread."""


class RowNeed(Need):
    """A need that says where rows end, or what is kept behind them. It is asked for each row."""

    def most(self, task: Task, start: int, n: int) -> int:
        """How many of the `n` tokens behind `start` a row may compute."""
        return n

    def uncut(self, task: Task, start: int, n: int, most: int) -> int:
        """How many of these `n` tokens a row may compute, or somewhat more, so that nothing is cut
        that has to be computed at once; `most` are possible."""
        return n

    def resumable(self, task: Task, start: int) -> Sequence[int] | None:
        """Numbers of tokens behind which another task can go on, once this one has computed the
        row that begins behind `start` tokens. None: behind each full page."""
        return None

    def commit(self, task: Task) -> None:
        """More tokens of a task are computed."""
