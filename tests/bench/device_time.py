"""Times what a device computes, to its end, and the limits of the device itself."""

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


def bandwidth(n_bytes: int, dtype: torch.dtype, device: str) -> float:
    """Bytes a second that are read and written by a copy larger than all caches."""
    source = torch.empty(n_bytes // dtype.itemsize, dtype=dtype, device=device).normal_()
    target = torch.empty_like(source)
    return 2 * source.nbytes / best_seconds(lambda: target.copy_(source), device)


def matmul_rate(n: int, dtype: torch.dtype, device: str) -> float:
    """Operations a second of a product of two large random matrices."""
    a, b = torch.randn(2, n, n, device=device).to(dtype)
    return 2 * n**3 / best_seconds(lambda: a @ b, device)
