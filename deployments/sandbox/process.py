"""Runs jobs on a stranger's input in a process of its own, which is started anew after it died.

What crashes there, never ends, or needs too much memory ends that process and its one job alone.
"""

import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import BinaryIO, TypeVar, cast

# NumPy's OpenBLAS reserves memory for each of its threads, of which there are as many as cores.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}

T = TypeVar("T")
Exchange = Callable[[BinaryIO, BinaryIO], T]  # writes a job, and reads its answer


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
