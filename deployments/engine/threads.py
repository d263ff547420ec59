"""Keeps the cores for the thread that runs the model.

OpenMP gives every thread that ever computes in parallel a team of workers of its own. With more
workers than cores a step was measured to take almost twice as long (tests/bench/RESULTS.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[int]:
    """The calling thread computes alone; yields the number of threads it would have used."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
