"""The other side of a JobProcess: bounds its own process, then answers one job after the other.

It ends when its standard input does, so that it does not outlive the process that asks.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
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
    resource.setrlimit(resource.RLIMIT_AS, (max_memory_bytes, max_memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    while line := jobs.readline():
        if max_cpu_s is not None:
            signal.setitimer(signal.ITIMER_PROF, max_cpu_s)
        answer(line, jobs, answers)
        answers.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)
