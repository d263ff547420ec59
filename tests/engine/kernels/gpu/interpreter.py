"""A process in which Triton's kernels are interpreted: they are so, or not, from its import on."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

P = ParamSpec("P")
T = TypeVar("T")

SETTINGS = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


def can_interpret() -> bool:
    """Triton before 3.7 makes integers of arrays in a way that numpy 2.4 does not know any more."""
    if find_spec("triton") is None:
        return False
    triton, numpy = (tuple(map(int, version(name).split(".")[:2])) for name in ("triton", "numpy"))
    return triton >= (3, 7) or numpy < (2, 4)


needs_triton = pytest.mark.skipif(
    not can_interpret(), reason="needs triton, and one for this numpy"
)


class Interpreter:
    """Calls functions there; they and what goes in and out are pickled."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._pool.submit(partial(function, *args, **kwargs)).result()


@contextmanager
def interpreter() -> Iterator[Interpreter]:
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)
    with pool:
        pool.submit(int).result()  # the process has begun, and has its environment
        yield Interpreter(pool)


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float32]:
    """a [m, k] times b [k, n], summed in the order of k: no bit depends on m, n or the processor.

    numpy's own product is a BLAS', which sums in an order that it chooses by shape and processor.
    """
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    parts = wide_a.T[:, :, None] * wide_b[:, None, :]  # [k, m, n]
    sums: NDArray[np.float32] = np.add.accumulate(parts, axis=0)
    last: NDArray[np.float32] = sums[-1]
    return last


def _begin() -> None:
    os.environ.update(SETTINGS)  # nothing has imported triton yet
    torch.set_num_threads(1)
    if can_interpret():
        _replace_product()


def _replace_product() -> None:
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def create_dot(
        builder: object, a: Any, b: Any, added: Any, precision: object, n_imprecise: object
    ) -> object:
        assert a.dtype.primitive_bitwidth > 8, "no kernel multiplies numbers of 8 bits"
        return TensorHandle(product(a.data, b.data) + added.data, added.dtype.scalar)

    InterpreterBuilder.create_dot = create_dot
