"""How kernels compiled by numba are called: on torch's own OpenMP team, at once or in a sequence.

A kernel's block of arguments counts the tasks that are taken, so that threads take them in turns.
"""

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import torch  # which loads the OpenMP that is looked for here
from numba import carray, cfunc, types
from torch import Tensor

from deployments.engine.kernels.cpu.simd import STAMP, Code, at_i64, call

# Sums may be taken in lanes; NaN and infinity stay what they are.
MATH = {"reassoc", "contract", "arcp", "nsz"}
SERIAL_WORK = 1 << 15  # multiplications that waking the workers would cost more than they save
WORDS = 24  # of a block of arguments


class Call(NamedTuple):
    function: int  # its address
    block: list[int]  # of arguments


class Recording(Protocol):
    """Takes down what a thread's kernels are called with, in the place of the calls."""

    def add(self, call: Call) -> None: ...

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory for what a kernel gives."""


class _Thread(threading.local):
    """Every thread's own block of arguments; its first word counts the tasks that are taken."""

    def __init__(self) -> None:
        self.block = (ctypes.c_int64 * WORDS)()
        self.address = ctypes.addressof(self.block)
        self.recording: Recording | None = None


THREAD = _Thread()


class Kernel:
    """A loop over independent tasks, which the threads of torch's own team take in turns."""

    def __init__(self, body: Callable[[Code], None], layout: str) -> None:
        self._function = _compile(body)  # kept, or its code would be gone
        self._address = self._function.address
        self._alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._address)
        self._pack = struct.Struct("q" + layout).pack_into

    def __call__(self, work: int, *arguments: float) -> None:
        """`work` is about how many multiplications it takes."""
        block, address = THREAD.block, THREAD.address
        self._pack(block, 0, 0, *arguments)
        if THREAD.recording is not None:
            THREAD.recording.add(Call(self._address, list(block)))
        elif work > SERIAL_WORK and TEAM is not None:
            TEAM(self._address, address, 0, 0)
        else:
            self._alone(address)


class CallSequence:
    """Calls that all threads of the team make one behind the other. Between two of them all wait
    for all, and nobody for Python."""

    def __init__(self, calls: Sequence[Call]) -> None:
        functions = np.array([one.function for one in calls], dtype=np.int64)
        self._blocks = np.array([one.block for one in calls], dtype=np.int64)  # [calls, WORDS]
        places = self._blocks.ctypes.data + np.arange(len(calls)) * self._blocks.strides[0]
        self._pairs = np.stack([functions, places], axis=1)

    def __call__(self) -> None:
        self._blocks[:, 0] = 0  # no task is taken
        _sequence_kernel()(sys.maxsize, self._pairs.ctypes.data, len(self._pairs), BARRIER)


@cache
def _sequence_kernel() -> Kernel:
    """Arguments: pairs of function and block, how many, the barrier's function."""

    def body(block: Code) -> None:
        a = carray(at_i64(block), (WORDS,))
        pairs = carray(at_i64(a[1]), (a[2], 2))
        for i in range(a[2]):
            call(pairs[i, 0], pairs[i, 1])
            call(a[3], 0)

    return Kernel(body, "qqq")


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for what a kernel gives."""
    recording = THREAD.recording
    return torch.empty(shape, dtype=dtype) if recording is None else recording.empty(shape, dtype)


def address_of(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def contiguous_rows(x: Tensor) -> Tensor:
    """With the last dimension's numbers side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _compile(body: Callable[[Code], None]) -> Code:
    # numba keeps what it compiled under this name while the file of the function stays the same.
    body.__qualname__ += f"_{STAMP}"

    def compiled(cache: bool) -> Code:
        kind = types.void(types.intp)
        return cfunc(kind, cache=cache, fastmath=MATH, error_model="numpy")(body)

    try:
        return compiled(cache=True)
    except RuntimeError:  # there is no folder that it could write into
        return compiled(cache=False)


def _find_team() -> tuple[Callable[..., None] | None, int]:
    """What runs a function on OpenMP's team of the calling thread, as torch's operations do, and
    the address of what its threads wait for each other with."""
    try:
        gomp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL)
        team, barrier = gomp.GOMP_parallel, gomp.GOMP_barrier
    except (OSError, AttributeError):
        return None, 0
    team.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    team.restype = None
    return team, ctypes.cast(barrier, ctypes.c_void_p).value or 0


TEAM, BARRIER = _find_team()
