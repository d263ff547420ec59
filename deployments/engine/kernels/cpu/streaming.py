"""How weights are read that a step reads once: what is fastest on this machine is measured.

Weights that stay in caches drive out what else a step reads: its code, inputs and sums. To read
those again takes as much as a third of the time, so it is measured with the weights.
"""

import time
from typing import NamedTuple

import numpy as np
import torch

from deployments.engine.kernels.cpu.matmul_kernels import NONE, matmul_kernel, shares_of
from deployments.engine.kernels.cpu.simd import PACK, PREFETCH_BYTES

N_MATRICES, N_OUT, N_IN = 16, 2048, 1024  # that are measured with: 64 MB, more than caches hold
BESIDE = 1 << 17  # numbers of float64: what else a step reads
TIMES = 6
MIN_GAIN = 1.1  # for less the first candidate is kept: what others do disturbs what is measured


class Streaming(NamedTuple):
    """How many bytes ahead weights are fetched, and whether they stay in caches."""

    ahead: int
    stays: bool


CANDIDATES = (
    Streaming(4096, False),
    Streaming(2048, False),
    Streaming(8192, False),
    Streaming(4096, True),
)
STAYING = Streaming(PREFETCH_BYTES, True)  # weights that several tiles of rows read


class _Choice:
    best = CANDIDATES[0]
    is_measured = False


def chosen() -> Streaming:
    return _Choice.best


def measure() -> None:
    """Chooses what is best for the threads of the calling one, once in a process: 0.1 s."""
    if _Choice.is_measured:
        return
    _Choice.is_measured = True
    trial = _Trial()
    seconds = dict.fromkeys(CANDIDATES, float("inf"))
    for _ in range(TIMES):
        for way in CANDIDATES:
            seconds[way] = min(seconds[way], trial.seconds(way))
    best = min(seconds, key=seconds.__getitem__)
    if seconds[CANDIDATES[0]] > MIN_GAIN * seconds[best]:
        _Choice.best = best


class _Trial:
    """Products of one row, and what else is read."""

    def __init__(self) -> None:
        self._weights = torch.ones(N_MATRICES, N_OUT * N_IN, dtype=torch.bfloat16)
        self._x, self._out = (torch.ones(n, dtype=torch.bfloat16) for n in (N_IN, N_OUT))
        random = np.random.default_rng(0)
        self._beside, self._order = random.random(BESIDE), random.permutation(BESIDE)[::8]

    def seconds(self, way: Streaming) -> float:
        self._beside.sum()
        begin = time.perf_counter()
        for weight in self._weights:
            self._multiply(weight.data_ptr(), way)
        self._beside[self._order].sum()
        return time.perf_counter() - begin

    def _multiply(self, weight: int, way: Streaming) -> None:
        matmul_kernel(PACK).call(
            N_OUT * N_IN,
            x=self._x.data_ptr(),
            weight=weight,
            bias=0,
            other=0,
            out=self._out.data_ptr(),
            rows=1,
            in_features=N_IN,
            out_features=N_OUT,
            epilogue=NONE,
            rows_per_task=1,
            **shares_of(N_OUT // PACK, torch.get_num_threads()),
            **way._asdict(),
        )
