"""Bounds the queue of waiting tasks, so that no client can fill it alone.

The count is exact on any thread. A task waits from its admission until it runs or ends, and again
after a preemption.
"""

import threading

from deployments.contract.errors import ErrorKind, Refused
from deployments.engine.tasks.task import Task
from deployments.serving.fair_share import FairShare


class Admission:
    """The waiting tasks. `admit` keeps their number within `max_waiting`; `enter` may exceed it."""

    def __init__(self, max_waiting: int) -> None:
        self._shares = FairShare(max_waiting)
        self._lock = threading.Lock()
        self._waiting: dict[Task, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def tasks(self) -> list[Task]:
        """All that wait, in no order that means anything. From any thread."""
        with self._lock:
            return [*self._waiting]

    def admit(self, task: Task) -> None:
        """Adds a task. Raises Refused if the queue, or its client's share of the queue, is full."""
        client = task.request.client
        with self._lock:
            if self._shares.is_full:
                raise _refused(f"{len(self._waiting)} requests are waiting already")
            if self._shares.is_used_up(client):
                n_own = self._shares.acquired_by(client)
                raise _refused(f"{n_own} requests of this client are waiting already")
            self._enter(task)

    def enter(self, task: Task) -> None:
        """Adds a task without a check: after a preemption, or where it was admitted elsewhere."""
        with self._lock:
            self._enter(task)

    def leave(self, task: Task) -> None:
        """Removes a task that runs or has ended. Does nothing if it was not waiting."""
        with self._lock:
            if task not in self._waiting:
                return
            del self._waiting[task]
            self._shares.release(task.request.client)

    def _enter(self, task: Task) -> None:
        self._waiting[task] = None
        self._shares.acquire(task.request.client)


def _refused(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.OVERLOADED, message)
