"""Lets no more texts run whose answers are vectors than a step can compute.

One request may have thousands. Running, each would hold a place and pages, and every step would
look at it.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from deployments.engine.tasks.task import Task

MAX_PARKED_AT_ONCE = 32  # so that many texts that come together hold up no step


class TextGate:
    """Iterates over the texts that are parked beside the queue: what is behind them goes on."""

    def __init__(self, max_tokens: int) -> None:
        """`max_tokens` are those of a step."""
        self._max_tokens = max_tokens
        self._parked: deque[Task] = deque()

    def __iter__(self) -> Iterator[Task]:
        return iter(self._parked)

    def __bool__(self) -> bool:
        return bool(self._parked)

    def admits(self, task: Task, running: Sequence[Task]) -> bool:
        """Whether the task may run. Else it is to be parked."""
        return task.pooled is None or self._room(running) > 0

    def park(self, task: Task) -> None:
        self._parked.append(task)

    def remove(self, task: Task) -> bool:
        """Whether it was parked."""
        if task not in self._parked:
            return False
        self._parked.remove(task)
        return True

    def release(self, running: Sequence[Task]) -> list[Task]:
        """Those that may be tried again, which are parked no more."""
        room, released = self._room(running), []
        while self._parked and room > 0:
            released.append(self._parked.popleft())
            room -= released[-1].n_tokens
        return released

    def _room(self, running: Sequence[Task]) -> int:
        """Tokens of a step that no running text has."""
        held = sum(task.n_uncomputed for task in running if task.pooled is not None)
        return self._max_tokens - held
