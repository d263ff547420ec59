"""Decides who may wait: the queue is bounded, and no client can fill it up for the others.

Counts exactly, from any thread: a task waits from its acceptance until it runs or ends, and again
when it is preempted.
"""

import threading
from collections import Counter

from deployments.engine.tasks.task import Task
from deployments.wire import ErrorKind, Refused

# A client may hold so many times the places that it leaves free: 8 of 9 where it is alone.
SHARE = 8


class Admission:
    """At most `max_waiting` tasks wait, but for those that `enter` without asking."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._waiting: dict[Task, None] = {}
        self._by_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def tasks(self) -> list[Task]:
        with self._lock:
            return [*self._waiting]

    def admit(self, task: Task) -> None:
        """Lets a task in. Raises Refused where the queue or its client's share of it is full."""
        client = task.request.client
        with self._lock:
            free = self._max_waiting - len(self._waiting)
            if free <= 0:
                raise _refused(f"{len(self._waiting)} requests are waiting already")
            if (held := self._by_client[client]) >= SHARE * free:
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
            client = task.request.client
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def _enter(self, task: Task) -> None:
        self._waiting[task] = None
        self._by_client[task.request.client] += 1


def _refused(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.OVERLOADED, message)
