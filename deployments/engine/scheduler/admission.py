"""Decides who may wait: the queue is bounded, and no client can fill it up for the others.

Counts exactly, from any thread: a task waits from its acceptance until it runs or ends, and again
when it is preempted.
"""

import threading

from deployments.engine.tasks.task import Task
from deployments.fair_share import FairShare
from deployments.wire import ErrorKind, Refused


class Admission:
    """At most `max_waiting` tasks wait, but for those that `enter` without asking."""

    def __init__(self, max_waiting: int) -> None:
        self._shares = FairShare(max_waiting)
        self._lock = threading.Lock()
        self._waiting: dict[Task, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def tasks(self) -> list[Task]:
        with self._lock:
            return [*self._waiting]

    def admit(self, task: Task) -> None:
        """Lets a task in. Raises Refused where the queue or its client's share of it is full."""
        client = task.request.client
        with self._lock:
            if self._shares.is_full:
                raise _refused(f"{len(self._waiting)} requests are waiting already")
            if self._shares.is_used_up(client):
                held = self._shares.held_by(client)
                raise _refused(f"{held} requests of this client are waiting already")
            self._enter(task)

    def enter(self, task: Task) -> None:
        with self._lock:
            self._enter(task)

    def leave(self, task: Task) -> None:
        """It runs or has ended; nothing happens where it did not wait."""
        with self._lock:
            if task not in self._waiting:
                return
            del self._waiting[task]
            self._shares.give_back(task.request.client)

    def _enter(self, task: Task) -> None:
        self._waiting[task] = None
        self._shares.take(task.request.client)


def _refused(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.OVERLOADED, message)
