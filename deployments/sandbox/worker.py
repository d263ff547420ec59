"""The other side of a JobProcess: bounds its own process, then answers one job after the other.

It ends when its standard input does, so that it does not outlive the process that asks.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

# Reads the rest of a job, whose first line is given, and writes its answer.
Answer = Callable[[bytes, BinaryIO, BinaryIO], None]


def serve(
    answer: Answer, *, niceness: int, max_memory_bytes: int, max_cpu_s: float | None = None
) -> None:
    """niceness: streams come first. max_memory_bytes: of addresses. max_cpu_s: of each job; the
    system ends the process then.
    """
    os.nice(niceness)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (max_memory_bytes, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    while line := jobs.readline():
        if max_cpu_s is not None:
            signal.setitimer(signal.ITIMER_PROF, max_cpu_s)
        answer(line, jobs, answers)
        answers.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)


@contextmanager
def unbounded() -> Iterator[None]:
    """Stops the job's time and lifts the bound of memory, for input that no stranger sent."""
    left_s, _ = signal.setitimer(signal.ITIMER_PROF, 0)
    bound, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (bound, most))
        signal.setitimer(signal.ITIMER_PROF, left_s)
