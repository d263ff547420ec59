"""Keeps the cores for the thread that runs the model.

OpenMP gives every thread that ever computes in parallel a team of workers of its own. With more
workers than cores a step was measured to take almost twice as long (tests/bench/RESULTS.md).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Usable(threading.local):
    """The number of threads that this one would use, were it not told to compute alone."""

    n: int | None = None


USABLE = _Usable()


@contextmanager
def one_thread() -> Iterator[int]:
    """The calling thread computes alone; yields the number of threads it would have used."""
    threads, before = torch.get_num_threads(), USABLE.n
    torch.set_num_threads(1)
    USABLE.n = before or threads
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
        USABLE.n = before


def usable_threads() -> int:
    """How many plain threads may share the work of this one: as many as it would use itself."""
    return USABLE.n or torch.get_num_threads()
