"""Runs jobs on a stranger's input in a process of its own, which is started anew after it died.

What crashes there, never ends, or needs too much memory ends that process and its one job alone. A
few processes are shared among the clients whose jobs they run: a client never has all of them. Of
those that wait the client with the fewest jobs in progress comes first, then who came first.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import BinaryIO, TypeVar, cast

# NumPy's OpenBLAS reserves memory for each of its threads, of which there are as many as cores.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}

T = TypeVar("T")
Exchange = Callable[[BinaryIO, BinaryIO], T]  # writes a job, and reads its answer

N_PROCESSES = 3
IDLE_S = 60.0  # until a process that others made needless ends
# Whom the work of this context is for.
served_client: ContextVar[str] = ContextVar("served_client", default="")


class ProcessDiedError(Exception):
    """`is_late`: it was ended when its job's time was over. `is_spent`: it was ended when its job
    had used the time of a processor that it may use.
    """

    def __init__(self, *, is_late: bool = False, is_spent: bool = False) -> None:
        super().__init__("it took too long" if is_late or is_spent else "it died")
        self.is_late = is_late
        self.is_spent = is_spent


class JobProcess:
    """Used by one thread at a time. The process begins with its first job, and again after it was
    ended. `module` is run in it, which calls `deployments.sandbox.worker.serve`.
    """

    def __init__(self, module: str, timeout_s: float) -> None:
        self._module = module
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[[subprocess.Popen[bytes]], JobProcess] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def run(self, exchange: Exchange[T]) -> T:
        """Blocks for `timeout_s` at most. `exchange` raises OSError, EOFError or ValueError where
        there is no whole answer. Raises ProcessDiedError.
        """
        process = self._process = self._process or self._begin()
        is_late = threading.Event()
        timer = threading.Timer(self._timeout_s, _kill, (process, is_late))
        timer.start()
        try:
            return exchange(cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout))
        except (OSError, EOFError, ValueError) as failure:
            self.close()
            is_spent = process.returncode == -signal.SIGPROF  # as `serve` bounds it
            raise ProcessDiedError(is_late=is_late.is_set(), is_spent=is_spent) from failure
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _begin(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            (sys.executable, "-m", self._module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": path, "PATH": os.defpath, **ENVIRONMENT},
        )
        self._end = weakref.finalize(self, _end, process)
        return process


def _kill(process: subprocess.Popen[bytes], is_late: threading.Event) -> None:
    is_late.set()
    process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not yet written has no reader any more
                continue
    process.wait()


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
