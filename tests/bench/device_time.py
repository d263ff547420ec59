"""Times what a device computes, to its end."""

import time
from collections.abc import Callable

import torch


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def best_seconds(run: Callable[[], object], device: str, times: int = 10) -> float:
    """The shortest of several, after one that does not count."""
    best = float("inf")
    for attempt in range(times + 1):
        wait(device)
        start = time.perf_counter()
        run()
        wait(device)
        if attempt:
            best = min(best, time.perf_counter() - start)
    return best
