"""The messages of other threads to the scheduler: tasks to run, tasks to end, and the rest."""

import queue
import threading
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from deployments.engine.tasks.task import Task


class Signal(Enum):
    WAKE = auto()  # a task may go on that could not
    STOP = auto()


class EndThinking(NamedTuple):
    task: Task


class Ending(NamedTuple):
    """The end of tasks: `name` is the id of a task or of a request. `is_complete`: its reader has
    all that it wants, so that it counts as none that was aborted.
    """

    name: str
    is_complete: bool


Message = Task | Ending | EndThinking | Signal  # a task is to be run


class Inbox:
    """Any thread may put in; the scheduler's thread alone takes out. A task that was accepted is
    taken by `messages` or by `close`."""

    def __init__(self) -> None:
        self._closing = threading.Lock()
        self.is_closed = False
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()

    def add(self, task: Task) -> bool:
        """False, and no change, after `close`."""
        with self._closing:
            if not self.is_closed:
                self._queue.put(task)
            return not self.is_closed

    def end(self, ending: Ending) -> None:
        self._queue.put(ending)

    def end_thinking(self, task: Task) -> None:
        self._queue.put(EndThinking(task))

    def wake(self) -> None:
        self._queue.put(Signal.WAKE)

    def stop(self) -> None:
        self._queue.put(Signal.STOP)

    def messages(self, *, wait: bool) -> Iterator[Message]:
        """All that have come, oldest first; waits for the first one if asked to."""
        while wait or not self._queue.empty():
            yield self._queue.get()
            wait = False

    def close(self) -> list[Task]:
        """Accepts no task from now on. Returns those that were accepted and not taken."""
        with self._closing:
            self.is_closed = True
        left = [self._queue.get() for _ in range(self._queue.qsize())]
        return [message for message in left if isinstance(message, Task)]
