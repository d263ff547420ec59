"""A decode's layers as one call, on a CPU: their kernels are written down once a number of tokens.

A recording reads its inputs from fixed places and computes what the layers do, bit for bit. Called
one by one, a step's kernels wait for Python, and for threads that wake (tests/bench/RESULTS.md).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from deployments.engine.attention.cpu import CpuAttention
from deployments.engine.attention.cpu_rows import DecodeRows
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.kernels.cpu.dispatch import TEAM, THREAD, Call, CallSequence
from deployments.engine.kernels.rotary import RotaryEmbedding

# x [tokens, hidden], rotary, step -> [tokens, hidden]
Layer = Callable[[Tensor, RotaryEmbedding, FusedStepAttention], Tensor]

MOST = 32  # tokens of a recorded step: with more the products take so long that the rest is little
PAGES = 64  # of a row, at first


class NotRecordableError(Exception):
    """Layers compute something in another way than by kernels of ours."""


class RecordedLayers:
    """The layers of one model, for the thread that runs them."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        self._inputs: _Inputs | None = None
        self._recordings: dict[int, tuple[CallSequence, Tensor] | None] = {}  # by tokens

    def __call__(
        self, x: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention
    ) -> Tensor | None:
        """What the layers give, until the next step; None if they have to be called themselves."""
        n = len(x)
        if not isinstance(step, CpuAttention) or step.decodes is None:
            return None
        if step.parts or step.chunks is not None:
            return None
        if TEAM is None or n > MOST or self._recordings.get(n, True) is None:
            return None
        if self._inputs is None or not self._inputs.fit(step):
            self._inputs = _Inputs(x, rotary, step)
            self._recordings.clear()
        self._inputs.load(x, rotary, step)
        if n not in self._recordings:
            self._recordings[n] = self._record(self._inputs.first(n, step))
        if (found := self._recordings[n]) is None:
            return None
        calls, out = found
        calls()
        return out

    def _record(
        self, inputs: "tuple[Tensor, RotaryEmbedding, CpuAttention]"
    ) -> tuple[CallSequence, Tensor] | None:
        assert self._inputs is not None
        x, rotary, step = inputs
        recording = _Recording(self._inputs.memory)
        try:
            with recording.running(), _Views():  # type: ignore[no-untyped-call]
                for layer in self._layers:
                    recording.begin_layer()
                    x = layer(x, rotary, step)
        except NotRecordableError:
            return None
        return CallSequence(recording.calls), x


class _Inputs:
    """What recordings read and compute in: all of them the same, with room for `MOST` tokens."""

    def __init__(self, x: Tensor, rotary: RotaryEmbedding, step: CpuAttention) -> None:
        assert step.decodes is not None
        self.memory: dict[object, Tensor] = {}
        self._storage = step.new.storage
        self._x = x.new_empty(MOST, *x.shape[1:])
        self._rotary = type(rotary)(*(one.new_empty(MOST, *one.shape[1:]) for one in rotary))
        self._slots = step.new.slots.new_empty(MOST)
        width = PAGES
        while width < step.decodes.page_table.shape[1]:
            width *= 2
        self._table = np.zeros((MOST, width), dtype=np.int64)
        self._places, self._total_len = np.zeros((2, MOST), dtype=np.int64)

    def fit(self, step: CpuAttention) -> bool:
        assert step.decodes is not None
        is_wide = step.decodes.page_table.shape[1] <= self._table.shape[1]
        return is_wide and step.new.storage is self._storage

    def load(self, x: Tensor, rotary: RotaryEmbedding, step: CpuAttention) -> None:
        assert step.decodes is not None
        n, rows = len(x), step.decodes
        self._x[:n] = x
        for own, given in zip(self._rotary, rotary, strict=True):
            own[:n] = given
        self._slots[:n] = step.new.slots
        self._table[:n, : rows.page_table.shape[1]] = rows.page_table
        self._places[:n], self._total_len[:n] = rows.places, rows.total_len

    def first(self, n: int, step: CpuAttention) -> "tuple[Tensor, RotaryEmbedding, CpuAttention]":
        rows = DecodeRows(self._places[:n], self._table[:n], self._total_len[:n])
        step = replace(step, new=replace(step.new, slots=self._slots[:n]), decodes=rows)
        return self._x[:n], type(self._rotary)(*(one[:n] for one in self._rotary)), step


class _Recording:
    """Calls as they come. Memory is given out anew with each layer but for the one before it, of
    which that layer reads what it left."""

    def __init__(self, memory: dict[object, Tensor]) -> None:
        self.calls: list[Call] = []
        self._memory = memory
        self._layer = self._nth = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        THREAD.recording = self
        try:
            yield
        finally:
            THREAD.recording = None

    def begin_layer(self) -> None:
        self._layer += 1
        self._nth = 0

    def add(self, call: Call) -> None:
        self.calls.append(call)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        n, *rest = shape
        key = (self._layer % 2, self._nth, *rest, dtype)
        self._nth += 1
        if key not in self._memory:
            with _disable_current_modes():
                self._memory[key] = torch.empty((MOST, *rest), dtype=dtype)
        return self._memory[key][:n]


class _Views(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what torch itself computes: nobody would compute it again."""

    def __torch_dispatch__(
        self,
        operation: Any,
        types: object,
        arguments: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
    ) -> object:
        if operation._schema.is_mutable:
            raise NotRecordableError(str(operation))
        out = operation(*arguments, **(named or {}))
        for one in out if isinstance(out, (list, tuple)) else (out,):
            if not arguments or not _share(one, arguments[0]):
                raise NotRecordableError(str(operation))
        return out


def _share(a: object, b: object) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
