"""Records the kernel calls of a decode's layers on a CPU, and replays them as one call.

There is one recording for each number of tokens. It reads its inputs from static memory, and its
results are bit for bit those of the layers. Without it, kernels wait for Python between calls, and
for threads to wake (tests/bench/RESULTS.md).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from deployments.engine.attention.cpu import CpuAttention
from deployments.engine.attention.cpu_rows import DecodeRows
from deployments.engine.attention.grouped import GroupedAttention
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.fused.norm import Norm
from deployments.engine.kernels.cpu.dispatch import (
    MAX_RECORDED_TOKENS,
    TEAM,
    THREAD,
    Call,
    CallSequence,
)
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE
from deployments.engine.kernels.rotary import Rotaries

# x [tokens, hidden], rotary embeddings, step -> [tokens, hidden]
Layer = Callable[[Tensor, Rotaries, FusedStepAttention], Tensor]

MAX_BUFFER_ROWS = MAX_RECORDED_TOKENS + FULL_TILE
MIN_TABLE_PAGES = 64  # of a row in the static page table, which grows with longer contexts


class NotRecordableError(Exception):
    """A layer computes something without our kernels."""


class RecordedLayers:
    """The recordings of one model's layers, for the one thread that runs them."""

    def __init__(self, layers: Sequence[Layer], norm: Norm | None = None) -> None:
        """`norm` is what follows the layers."""
        self.layers = layers
        self.norm = norm
        self._inputs: _StaticInputs | None = None
        # By tokens and what is tapped.
        self._recordings: dict[tuple[int, frozenset[int]], _Recording | None] = {}

    def __call__(
        self,
        x: Tensor,
        rotaries: Rotaries,
        step: FusedStepAttention,
        tapped: frozenset[int] = frozenset(),
    ) -> tuple[Tensor, Mapping[int, Tensor]] | None:
        """[tokens, hidden] -> [tokens, hidden], and of the same shape what the layers read whose
        numbers are `tapped`. The next call overwrites both.

        None if the layers can't be recorded for this step: the caller then runs them itself.
        """
        n, key = len(x), (len(x), tapped)
        steps = _distinct(step)
        if not steps or not all(_has_decodes_alone(own) for own in steps):
            return None
        if TEAM is None or n > MAX_RECORDED_TOKENS or self._recordings.get(key, True) is None:
            return None
        if self._inputs is None or not self._inputs.has_room_for(steps):
            self._inputs = _StaticInputs(x, rotaries, steps)
            self._recordings.clear()
        self._inputs.load(x, rotaries, steps)
        if key not in self._recordings:
            self._recordings[key] = self._record(*self._inputs.views(n, step, steps), tapped)
        if (recording := self._recordings[key]) is None:
            return None
        recording.calls()
        return recording.out, recording.read

    def _record(
        self, x: Tensor, rotaries: Rotaries, step: FusedStepAttention, tapped: frozenset[int]
    ) -> "_Recording | None":
        assert self._inputs is not None
        recorder, read = Recorder(self._inputs.buffers), dict[int, Tensor]()
        try:
            with recorder.running():
                for number, layer in enumerate(self.layers):
                    if number in tapped:
                        read[number] = x
                    recorder.begin_layer(kept_for=number + 1 if number + 1 in tapped else None)
                    x = layer(x, rotaries, step)
                if self.norm is not None:
                    recorder.begin_layer()
                    x = self.norm(x)
        except NotRecordableError:
            return None
        return _Recording(CallSequence(recorder.calls), x, read)


@dataclass(frozen=True, slots=True)
class _Recording:
    calls: CallSequence
    out: Tensor
    read: Mapping[int, Tensor]  # by the numbers of tapped layers


def _distinct(step: FusedStepAttention) -> list[CpuAttention]:
    """The attention of a step by groups of layers with the same pages; none: it is not ours."""
    if isinstance(step, GroupedAttention):
        own = [*{id(of_layer): of_layer for of_layer in step.steps}.values()]
    else:
        own = [step]
    found = [of_layers for of_layers in own if isinstance(of_layers, CpuAttention)]
    return found if len(found) == len(own) else []


def _has_decodes_alone(step: CpuAttention) -> bool:
    return step.decodes is not None and not step.padded and step.chunks is None


class _StaticInputs:
    """The memory that all recordings read and compute in, for MAX_RECORDED_TOKENS tokens."""

    def __init__(self, x: Tensor, rotaries: Rotaries, steps: Sequence[CpuAttention]) -> None:
        self.buffers: dict[object, Tensor] = {}
        self._x = x.new_empty(MAX_RECORDED_TOKENS, *x.shape[1:])
        self._rotaries = {
            kind: rotary.map(lambda part: part.new_empty(MAX_RECORDED_TOKENS, *part.shape[1:]))
            for kind, rotary in rotaries.items()
        }
        self._rows = [_StaticRows(step) for step in steps]

    def has_room_for(self, steps: Sequence[CpuAttention]) -> bool:
        """Whether the page tables are wide enough, and the step has the same storage."""
        if len(steps) != len(self._rows):
            return False
        pairs = zip(self._rows, steps, strict=True)
        return all(rows.has_room_for(step) for rows, step in pairs)

    def load(self, x: Tensor, rotaries: Rotaries, steps: Sequence[CpuAttention]) -> None:
        """Copies a step's inputs here."""
        n = len(x)
        self._x[:n] = x
        for kind, rotary in rotaries.items():
            self._rotaries[kind].map(lambda part: part[:n]).copy_(rotary)
        for rows, step in zip(self._rows, steps, strict=True):
            rows.load(step)

    def views(
        self, n: int, step: FusedStepAttention, steps: Sequence[CpuAttention]
    ) -> tuple[Tensor, Rotaries, FusedStepAttention]:
        """The inputs of `n` tokens, in the static memory. The rest is taken from `step`."""
        rotaries = {
            kind: rotary.map(lambda part: part[:n]) for kind, rotary in self._rotaries.items()
        }
        own = {
            id(of_layers): rows.view(n, of_layers)
            for rows, of_layers in zip(self._rows, steps, strict=True)
        }
        if isinstance(step, GroupedAttention):
            static: FusedStepAttention = GroupedAttention(
                [own[id(of_layer)] for of_layer in step.steps]
            )
        else:
            static = own[id(step)]
        return self._x[:n], rotaries, static


class _StaticRows:
    """The rows of layers with the same pages."""

    def __init__(self, step: CpuAttention) -> None:
        assert step.decodes is not None
        self._storage = step.view.storage
        self._slots = step.view.slots.new_empty(MAX_RECORDED_TOKENS)
        width = MIN_TABLE_PAGES
        while width < step.decodes.page_table.shape[1]:
            width *= 2
        self._table = np.zeros((MAX_RECORDED_TOKENS, width), dtype=np.int64)
        self._token_index, self._total_len = np.zeros((2, MAX_RECORDED_TOKENS), dtype=np.int64)

    def has_room_for(self, step: CpuAttention) -> bool:
        assert step.decodes is not None
        is_wide = step.decodes.page_table.shape[1] <= self._table.shape[1]
        return is_wide and step.view.storage is self._storage

    def load(self, step: CpuAttention) -> None:
        assert step.decodes is not None
        rows, n = step.decodes, len(step.decodes.token_index)
        self._slots[:n] = step.view.slots
        self._table[:n, : rows.page_table.shape[1]] = rows.page_table
        self._token_index[:n], self._total_len[:n] = rows.token_index, rows.total_len

    def view(self, n: int, step: CpuAttention) -> CpuAttention:
        rows = DecodeRows(self._token_index[:n], self._table[:n], self._total_len[:n])
        return replace(step, view=replace(step.view, slots=self._slots[:n]), decodes=rows)


class Recorder:
    """Collects kernel calls, and hands out the memory of their results.

    A layer reads the result of the layer before it. Layers therefore alternate between two sets of
    buffers. A result that is tapped has a set of its own.
    """

    def __init__(self, buffers: dict[object, Tensor]) -> None:
        self.calls: list[Call] = []
        self._buffers = buffers
        self._layer = self._buffer_index = 0
        self._set: object = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within, kernels are recorded. Raises NotRecordableError for what torch computes."""
        THREAD.recording = self
        try:
            with _ViewsOnly():  # type: ignore[no-untyped-call]
                yield
        finally:
            THREAD.recording = None

    def begin_layer(self, kept_for: int | None = None) -> None:
        """`kept_for` is the number of the tapped layer that reads the result of this one."""
        self._layer += 1
        self._buffer_index = 0
        self._set = self._layer % 2 if kept_for is None else ("tapped", kept_for)

    def add(self, call: Call) -> None:
        self.calls.append(call)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized buffer of `shape`, whose first dimension is the tokens, and a tile more
        for kernels that read behind them."""
        n, *rest = shape
        key = (self._set, self._buffer_index, *rest, dtype)
        self._buffer_index += 1
        if key not in self._buffers:
            with _disable_current_modes():
                self._buffers[key] = torch.empty((MAX_BUFFER_ROWS, *rest), dtype=dtype)
        return self._buffers[key][:n]


class _ViewsOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations of torch that are no views, because a replay would not compute them."""

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
        for result in out if isinstance(out, (list, tuple)) else (out,):
            if not arguments or not _share_memory(result, arguments[0]):
                raise NotRecordableError(str(operation))
        return out


def _share_memory(a: object, b: object) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
