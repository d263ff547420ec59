"""Calls kernels compiled by numba on torch's own OpenMP team, at once or in a sequence.

A kernel's block of arguments begins with the number of tasks that threads have taken, so that each
thread takes the next one when it has done one.
"""

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol, get_type_hints
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch  # which loads the OpenMP that is looked for here
from numba import carray, cfunc, from_dtype, njit, types
from torch import Tensor

from deployments.engine.kernels.cpu.simd import Code, at_i64, call, pointer_to

# Sums may be taken in lanes; NaN and infinity stay what they are.
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}
MAX_SERIAL_WORK = 1 << 15  # multiplications: for so few it does not pay to wake the workers
MAX_RECORDED_TOKENS = 32  # in longer steps the products take so long that calls hardly count
BLOCK_WORDS = 32  # of a block of arguments, the number of tasks taken included


class Call(NamedTuple):
    function: int  # its address
    block: list[int]  # of arguments


class Recording(Protocol):
    """Keeps a thread's calls of kernels, which are then not made."""

    def add(self, call: Call) -> None: ...

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Returns memory for the result of a kernel."""


class _Thread(threading.local):
    """Each thread's own block of arguments."""

    def __init__(self) -> None:
        self.block = (ctypes.c_int64 * BLOCK_WORDS)()
        self.address = ctypes.addressof(self.block)
        self.recording: Recording | None = None


THREAD = _Thread()


Arguments = type[tuple[float, ...]]  # a NamedTuple of int and float, which names and orders them


def reader_of(arguments: Arguments) -> Code:
    """A function for kernels: it reads the block at an address as a record of these names."""
    kinds = {int: np.int64, float: np.float64}
    fields = [(name, kinds[hint]) for name, hint in get_type_hints(arguments).items()]
    at = pointer_to(from_dtype(np.dtype([("tasks_taken", np.int64), *fields])))

    @njit(inline="always")
    def read(block: Code) -> Code:
        return carray(at(block), (1,))[0]

    return read


def _layout_of(arguments: Arguments) -> struct.Struct:
    """The words of a block, of which the first is the number of tasks taken."""
    codes = ["q" if hint is int else "d" for hint in get_type_hints(arguments).values()]
    return struct.Struct("".join(["q", *codes]))


def block_of(arguments: tuple[float, ...]) -> npt.NDArray[np.int64]:
    """A NamedTuple in memory, as `reader_of` its type reads it."""
    return np.frombuffer(_layout_of(type(arguments)).pack(0, *arguments), np.int64).copy()


class Kernel:
    """A loop over independent tasks, of which the threads of torch's own team take the next one
    each.

    call: takes about how many multiplications there are to do, and the arguments by their names.
    address: of its function, for kernels that call it.
    """

    def __init__(self, body: Callable[[Code], None], arguments: Arguments) -> None:
        self._function = _compile(body)  # kept, or its code would be gone
        self.address = self._function.address
        self._run_alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)
        self._pack = _layout_of(arguments).pack_into
        # Written out, as a namedtuple is: such a call takes no longer than one without names.
        hints = get_type_hints(arguments)
        names = ", ".join(hints)
        source = f"lambda work, {names}: run(work, ({names},))"
        self.call: Callable[..., None] = eval(source, {"run": self._run})
        self._names = (*hints,)

    def _run(self, work: int, arguments: tuple[float, ...]) -> None:
        block, address = THREAD.block, THREAD.address
        self._pack(block, 0, 0, *arguments)
        if THREAD.recording is not None:
            THREAD.recording.add(Call(self.address, list(block)))
        elif work > MAX_SERIAL_WORK and TEAM is not None:
            TEAM(self.address, address, 0, 0)
        else:
            self._run_alone(address)

    def call_on_threads(self, n_threads: int, **arguments: float) -> None:
        """Shares the tasks among this thread and others that end behind it. No team is woken: a
        thread that did so would have one of its own from then on."""
        block = (ctypes.c_int64 * BLOCK_WORDS)()
        self._pack(block, 0, 0, *(arguments[name] for name in self._names))
        address = ctypes.addressof(block)
        others = [
            threading.Thread(target=self._run_alone, args=(address,)) for _ in range(1, n_threads)
        ]
        try:
            for thread in others:
                thread.start()
            self._run_alone(address)
        finally:  # they use memory of the caller
            for thread in others:
                if thread.ident is not None:
                    thread.join()


class CallSequence:
    """Calls that all threads of the team make one after the other.

    Between two calls each thread waits for all others, and none for Python.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        functions = np.array([kernel_call.function for kernel_call in calls], dtype=np.int64)
        self._blocks = np.array(
            [kernel_call.block for kernel_call in calls], dtype=np.int64
        )  # [calls, BLOCK_WORDS]
        addresses = self._blocks.ctypes.data + np.arange(len(calls)) * self._blocks.strides[0]
        self._pairs = np.stack([functions, addresses], axis=1)

    def __call__(self) -> None:
        self._blocks[:, 0] = 0  # no task is taken
        _sequence_kernel().call(
            sys.maxsize, calls=self._pairs.ctypes.data, n_calls=len(self._pairs), barrier=BARRIER
        )


class SequenceArguments(NamedTuple):
    calls: int  # address of int64 [n_calls, 2]: addresses of a function and of its block
    n_calls: int
    barrier: int  # address of a function


_sequence_arguments = reader_of(SequenceArguments)


@cache
def _sequence_kernel() -> Kernel:
    def body(block: Code) -> None:
        args = _sequence_arguments(block)
        calls = carray(at_i64(args.calls), (args.n_calls, 2))
        for i in range(args.n_calls):
            call(calls[i, 0], calls[i, 1])
            call(args.barrier, 0)

    return Kernel(body, SequenceArguments)


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for the result of a kernel."""
    recording = THREAD.recording
    return torch.empty(shape, dtype=dtype) if recording is None else recording.empty(shape, dtype)


def address_of(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def row_stride(x: Tensor) -> int:
    """How many numbers after a row the next one is."""
    return x.stride(-2) if x.dim() > 1 else 0


def contiguous_rows(x: Tensor) -> Tensor:
    """Returns x with the numbers of its last dimension side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


@cache
def _checksum_of_sources() -> str:
    checksum = 0
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        checksum = crc32(path.read_bytes(), checksum)
    return f"{checksum:08x}"


def _compile(body: Callable[[Code], None]) -> Code:
    # numba keeps on disk what it compiled, by this name, while the function's own file stays the
    # same. It does not look at other files, from which code is compiled into the function.
    # Bodies that differ in what they close over get names of their own: under one name two
    # processes that write at once may put the code of one where that of the other is looked for.
    closed_over = [cell.cell_contents for cell in body.__closure__ or ()]
    variant = "".join(f"_{value:d}" for value in closed_over if isinstance(value, int))
    body.__qualname__ += f"{variant}_{_checksum_of_sources()}"

    def compiled(cache: bool) -> Code:
        kind = types.void(types.intp)
        return cfunc(kind, cache=cache, fastmath=FAST_MATH, error_model="numpy")(body)

    try:
        return compiled(cache=True)
    except RuntimeError:  # there is no folder that it could write into
        return compiled(cache=False)


def _find_team() -> tuple[Callable[..., None] | None, int]:
    """GOMP_parallel, which runs a function on the OpenMP team that torch's operations use, and the
    address of GOMP_barrier, at which the team's threads wait for each other.
    """
    try:
        gomp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL)
        team, barrier = gomp.GOMP_parallel, gomp.GOMP_barrier
    except (OSError, AttributeError):
        return None, 0
    team.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    team.restype = None
    return team, ctypes.cast(barrier, ctypes.c_void_p).value or 0


TEAM, BARRIER = _find_team()
