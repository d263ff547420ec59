"""Captures decode steps as CUDA graphs, one for each batch size, and replays them.

A replayed row has the result of an uncaptured step. Graphs read their inputs from static memory.
Padding rows have no context and no slot, so they write nothing and no other row reads them.
"""

import logging
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from deployments.engine.attention.gpu import NO_SLOT, TritonAttention
from deployments.engine.attention.grouped import plan_by_layer
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage
from kv.view import token_slots

if TYPE_CHECKING:
    from deployments.engine.forward.inputs import StepInputs

log = logging.getLogger(__name__)

# token_ids [tokens], positions [tokens], logit_indices [logits], step -> logits [logits, vocab]
Decode = Callable[[Tensor, Tensor, Tensor, FusedStepAttention], Tensor]
# Captures a function that works on static tensors. Returns a function that replays it.
Capture = Callable[[Callable[[], None]], Callable[[], None]]

NO_CHUNKS = np.empty(0, dtype=np.int64)
# Graphs for contexts of at most this many tokens launch fewer programs.
SHORT_CONTEXT = 2048
# So few rows do not fill a GPU. Idle programs then cost nothing, and one graph serves all contexts.
SMALL_BATCH = 8
PROGRESS_INTERVAL = 8  # graphs between two log lines


def capture_sizes(max_rows: int) -> list[int]:
    """The batch sizes that are captured, ascending. A step is padded to the next one."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, max_rows, 64)]
    return [size for size in sizes if size < max_rows] + [max_rows]


class StaticInputs:
    """The inputs of up to `max_rows` decodes of up to `max_tokens` tokens, in static memory."""

    def __init__(self, storage: Storage, max_rows: int, max_tokens: int) -> None:
        device = storage.device
        pages = -(-max_tokens // storage.page_size)
        self._storage = storage
        groups = len(storage.groups)
        self._table = torch.zeros(groups, max_rows, pages, dtype=torch.int32, device=device)
        self._addresses = [*dict.fromkeys(storage.addressed_as)]  # layers, each with slots
        self._starts = torch.arange(max_rows + 1, device=device)
        # [3 + addresses, max_rows]: token ids, positions, tokens after the step, slots
        self._rows = to_device(self._padding(), device)
        self.max_rows = max_rows
        self.max_tokens = max_tokens

    def load(self, step: "StepInputs") -> None:
        """Copies a step of rows with one new token each. Does not wait for the copy to end."""
        _, n, width = step.page_table.shape
        rows = self._padding()
        rows[:3, :n] = step.token_ids, step.positions, step.total_len
        for row, layer in enumerate(self._addresses, 3):
            table = step.page_table[self._storage.group_of[layer]]
            rows[row, :n] = token_slots(self._storage, layer, table, step.total_len, step.new_len)
        device = self._rows.device
        self._rows.copy_(to_device(rows, device), non_blocking=True)
        if step.sampled_ids is not None:
            self._rows[0, :n].copy_(step.sampled_ids)
        tables = torch.from_numpy(step.page_table.astype(np.int32))
        if device.type == "cuda":
            tables = tables.pin_memory()
        self._table[:, :n, :width].copy_(tables, non_blocking=True)

    def views(self, n: int, max_context: int) -> tuple[Tensor, Tensor, Tensor, FusedStepAttention]:
        """The arguments of a `Decode` for `n` rows of at most `max_context` tokens."""
        token_ids, positions, total_len, *slots = self._rows[:, :n]

        def plan(layer: int) -> TritonAttention:
            return TritonAttention(
                storage=self._storage,
                page_table=self._table[self._storage.group_of[layer], :n],
                total_len=total_len,
                starts=self._starts[: n + 1],
                slots=slots[self._addresses.index(layer)],
                chunk_rows=NO_CHUNKS,
                chunk_len=NO_CHUNKS,
                chunk_total=NO_CHUNKS,
                max_decode_len=max_context,
            )

        return token_ids, positions, self._starts[:n], plan_by_layer(self._storage, plan)

    def _padding(self) -> IntArray:
        rows = np.zeros((3 + len(self._addresses), len(self._starts) - 1), dtype=np.int64)
        rows[3:] = NO_SLOT
        return rows


class DecodeGraphs:
    """The captured decode steps of one model. They share one pool of memory."""

    def __init__(self, decode: Decode, inputs: StaticInputs, capture: Capture) -> None:
        self._decode = decode
        self._inputs = inputs
        self._capture = capture
        self._sizes = capture_sizes(inputs.max_rows)
        self._replays: dict[tuple[int, int], Callable[[], None]] = {}
        self._logits: Tensor | None = None  # [max_rows, vocab], the output of all graphs

    def __len__(self) -> int:
        return len(self._replays)

    @torch.inference_mode()
    def capture(self) -> None:
        """Captures all batch sizes. A model that can't be captured, or whose graphs do not fit into
        the device's memory, has no graphs afterwards. The log says why."""
        keys = [*self._keys()]
        try:
            for n_done, key in enumerate(keys, 1):
                self._replays[key] = self._capture(lambda key=key: self._run(*key))  # type: ignore[misc]
                if n_done % PROGRESS_INTERVAL == 0 or n_done == len(keys):
                    log.info("captured %d of %d CUDA graphs", n_done, len(keys))
        except RuntimeError as error:  # the model waits for the device, say to branch on a value
            if is_out_of_memory(error):
                log.error(
                    "the device has no memory for CUDA graphs: of %d only %d could be captured. "
                    "All are dropped, and decodes are slower than they could be. "
                    "Lower gpu_memory_utilization, kv_gib or max_running: %s",
                    *(len(keys), len(self._replays), error),
                )
            else:
                log.warning("this model runs without CUDA graphs, it can't be captured: %s", error)
            self._replays.clear()
        if not self._replays:  # the error is gone, and with it the tensors that it held
            self._logits = None
            release_memory()

    def logits(self, step: "StepInputs") -> Tensor | None:
        """Replays a step. Returns [logits, vocab], which the next call overwrites.

        None if there is no graph for the step.
        """
        if not self._replays or len(step.new_len) > self._inputs.max_rows:
            return None
        if (step.new_len != 1).any():
            return None
        self._inputs.load(step)
        self._replays[self._key(len(step.new_len), int(step.total_len.max()))]()
        assert self._logits is not None
        if np.array_equal(step.logit_indices, np.arange(len(step.logit_indices))):
            return self._logits[: len(step.logit_indices)]
        return self._logits[to_device(step.logit_indices, self._logits.device)]

    def _keys(self) -> Iterator[tuple[int, int]]:
        """Batch sizes and bounds of the context. The largest graph is first: its memory is large
        enough for all others."""
        for n in reversed(self._sizes):
            yield from ((n, bound) for bound in self._context_bounds(n))

    def _context_bounds(self, n: int) -> Sequence[int]:
        bound = self._inputs.max_tokens
        return (bound,) if n <= SMALL_BATCH or bound <= SHORT_CONTEXT else (bound, SHORT_CONTEXT)

    def _key(self, rows: int, max_context: int) -> tuple[int, int]:
        n = self._sizes[bisect_left(self._sizes, rows)]
        return n, min(bound for bound in self._context_bounds(n) if bound >= max_context)

    def _run(self, n: int, max_context: int) -> None:
        logits = self._decode(*self._inputs.views(n, max_context))
        if self._logits is None:
            self._logits = logits.new_zeros(self._inputs.max_rows, logits.shape[1])
        self._logits[:n].copy_(logits)


class CudaGraphCapture:
    """Captures functions as CUDA graphs that share one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        # One stream for all graphs: libraries keep a workspace for every stream that they see.
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        """Raises RuntimeError for a function that waits for the device."""
        # Warm up first: on their first call libraries allocate and kernels are compiled.
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream), _raise_on_sync():
            run()
        before.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile: only this thread is captured.
        capture = torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        try:
            with capture:
                run()
        finally:
            torch.cuda.set_stream(before)  # a failed capture leaves its own stream in place
        replay: Callable[[], None] = graph.replay
        return replay


@contextmanager
def _raise_on_sync() -> Iterator[None]:
    """Raises RuntimeError as soon as the host waits for the device, on any thread.

    Such a function can't be captured, and some versions of torch do not recover from the attempt.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def capture_decodes(
    decode: Decode, storage: Storage, max_rows: int, max_tokens: int
) -> DecodeGraphs:
    """Captures decode steps of up to `max_rows` rows of up to `max_tokens` tokens.

    Must be called on the thread that will replay them, after the model has run once.
    """
    graphs = DecodeGraphs(decode, StaticInputs(storage, max_rows, max_tokens), CudaGraphCapture())
    graphs.capture()
    return graphs
