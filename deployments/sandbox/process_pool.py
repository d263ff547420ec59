"""Shares a few processes among the clients whose jobs they run: a client never has all of them.

Of those that wait the client with the fewest jobs in progress comes first, then who came first.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from deployments.sandbox.process import JobProcess

N_PROCESSES = 3
IDLE_S = 60.0  # until a process that others made needless ends
# Whom the work of this context is for.
served_client: ContextVar[str] = ContextVar("served_client", default="")


class ProcessPool:
    """Any thread may ask, and waits for a process. They begin when they are needed."""

    def __init__(self, module: str, timeout_s: float) -> None:
        self._module = module
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self._waiting: list[str] = []  # clients, by when they came
        self._idle: list[tuple[float, JobProcess]] = []  # with the time of its last job

    @contextmanager
    def process(self) -> Iterator[JobProcess]:
        """A process that nobody else uses."""
        asking = served_client.get()
        process = self._take(asking)
        try:
            yield process
        finally:
            self._give_back(asking, process)

    def close(self) -> None:
        """Ends the processes that have nothing to do."""
        with self._changed:
            idle, self._idle = self._idle, []
        for _, process in idle:
            process.close()

    def _take(self, asking: str) -> JobProcess:
        with self._changed:
            self._waiting.append(asking)
            self._changed.wait_for(lambda: self._is_next(asking))
            self._waiting.remove(asking)
            self._running[asking] += 1
            self._changed.notify_all()  # there may be another process
            return self._idle.pop()[1] if self._idle else JobProcess(self._module, self._timeout_s)

    def _is_next(self, asking: str) -> bool:
        if self._running.total() >= N_PROCESSES:
            return False
        may = [client for client in self._waiting if self._running[client] < N_PROCESSES - 1]
        return bool(may) and min(may, key=self._running.__getitem__) == asking

    def _give_back(self, asking: str, process: JobProcess) -> None:
        now = time.monotonic()
        with self._changed:
            self._running[asking] -= 1
            if not self._running[asking]:
                del self._running[asking]
            needless = [idle for used, idle in self._idle if now - used > IDLE_S]
            self._idle = [(used, idle) for used, idle in self._idle if now - used <= IDLE_S]
            # The last is taken first: not one that has to begin anew, whoever ended it.
            self._idle.insert(0 if process.pid is None else len(self._idle), (now, process))
            self._changed.notify_all()
        for idle in needless:
            idle.close()
