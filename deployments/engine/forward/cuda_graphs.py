"""Decodes recorded once a row count and replayed: a row's result is that of the step unrecorded.

A recording reads its inputs from fixed places. Rows it has too many are given no tokens of context
and no slot: they write nothing, and nothing that another row reads.
"""

import logging
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.attention.gpu import NO_SLOT, TritonAttention
from deployments.engine.transfer import to_device
from kv.storage import Storage
from kv.view import token_slots

if TYPE_CHECKING:
    from deployments.engine.forward.inputs import StepInputs

log = logging.getLogger(__name__)

# token_ids [tokens], positions [tokens], kept [kept], step -> logits [kept, vocab]
Decode = Callable[[Tensor, Tensor, Tensor, TritonAttention], Tensor]
# Runs a function a first time; what it returns does the same again, on the same tensors.
Record = Callable[[Callable[[], None]], Callable[[], None]]

NO_ROWS = np.empty(0, dtype=np.int64)
NEAR = 2048  # contexts up to here are launched with fewer programs
FEW = 8  # rows that don't fill a device: idle programs cost them nothing


def row_counts(max_rows: int) -> list[int]:
    """Row counts that are recorded; a step takes the next one up."""
    counts = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, max_rows, 64)]
    return [count for count in counts if count < max_rows] + [max_rows]


class StaticInputs:
    """The inputs of up to `max_rows` decodes of up to `max_tokens` tokens, at fixed places."""

    def __init__(self, storage: Storage, max_rows: int, max_tokens: int) -> None:
        device = storage.k.device
        pages = -(-max_tokens // storage.page_size)
        self._storage = storage
        self._table = torch.zeros(max_rows, pages, dtype=torch.int32, device=device)
        self._starts = torch.arange(max_rows + 1, device=device)
        # [4, max_rows]: token ids, positions, tokens after the step, slots
        self._rows = to_device(self._padded(), device)
        self.max_rows = max_rows
        self.max_tokens = max_tokens

    def load(self, step: "StepInputs") -> None:
        """Copies a step of rows with one new token each; returns before the device has it."""
        n, width = step.page_table.shape
        slots = token_slots(step.page_table, step.total_len, step.new_len, self._storage.page_size)
        rows = self._padded()
        rows[:, :n] = step.token_ids, step.positions, step.total_len, slots
        device = self._rows.device
        self._rows.copy_(to_device(rows, device), non_blocking=True)
        if step.drawn is not None:
            self._rows[0, :n].copy_(step.drawn)
        table = torch.from_numpy(step.page_table.astype(np.int32))
        if device.type == "cuda":
            table = table.pin_memory()
        self._table[:n, :width].copy_(table, non_blocking=True)

    def first(self, n: int, longest: int) -> tuple[Tensor, Tensor, Tensor, TritonAttention]:
        """Of the first `n` rows, as long as `longest` at most, what a `Decode` takes."""
        token_ids, positions, total_len, slots = self._rows[:, :n]
        step = TritonAttention(
            storage=self._storage,
            page_table=self._table[:n],
            total_len=total_len,
            starts=self._starts[: n + 1],
            slots=slots,
            chunk_rows=NO_ROWS,
            chunk_len=NO_ROWS,
            chunk_total=NO_ROWS,
            longest_decode=longest,
        )
        return token_ids, positions, self._starts[:n], step

    def _padded(self) -> NDArray[np.int64]:
        rows = np.zeros((4, len(self._starts) - 1), dtype=np.int64)
        rows[3] = NO_SLOT
        return rows


class DecodeGraphs:
    """Recordings of one model's decodes, all from one pool of memory."""

    def __init__(self, decode: Decode, inputs: StaticInputs, record: Record) -> None:
        self._decode = decode
        self._inputs = inputs
        self._record = record
        self._counts = row_counts(inputs.max_rows)
        self._replays: dict[tuple[int, int], Callable[[], None]] = {}
        self._logits: Tensor | None = None  # [max_rows, vocab], where all recordings leave theirs

    def __len__(self) -> int:
        return len(self._replays)

    @torch.inference_mode()
    def record(self) -> None:
        """Records all; a model that can't be recorded keeps none, and runs as it did."""
        wanted = list(self._wanted())
        try:
            for key in _told(wanted):
                self._replays[key] = self._record(lambda key=key: self._run(*key))  # type: ignore[misc]
        except RuntimeError as error:  # it waits for the device, or branches on what that says
            self._replays.clear()
            log.warning("decodes of this model can't be recorded: %s", error)

    def logits(self, step: "StepInputs") -> Tensor | None:
        """Behind the kept tokens [kept, vocab], until the next step; None: not recorded."""
        if not self._replays or len(step.new_len) > self._inputs.max_rows:
            return None
        if (step.new_len != 1).any():
            return None
        self._inputs.load(step)
        self._replays[self._key(len(step.new_len), int(step.total_len.max()))]()
        assert self._logits is not None
        if np.array_equal(step.kept, np.arange(len(step.kept))):
            return self._logits[: len(step.kept)]
        return self._logits[to_device(step.kept, self._logits.device)]

    def _wanted(self) -> Iterator[tuple[int, int]]:
        """Row counts and longest contexts; the largest first, whose memory the others then use."""
        for n in reversed(self._counts):
            yield from ((n, longest) for longest in self._reaches(n))

    def _reaches(self, n: int) -> Sequence[int]:
        longest = self._inputs.max_tokens
        return (longest,) if n <= FEW or longest <= NEAR else (longest, NEAR)

    def _key(self, rows: int, longest: int) -> tuple[int, int]:
        n = self._counts[bisect_left(self._counts, rows)]
        return n, min(reach for reach in self._reaches(n) if reach >= longest)

    def _run(self, n: int, longest: int) -> None:
        logits = self._decode(*self._inputs.first(n, longest))
        if self._logits is None:
            self._logits = logits.new_zeros(self._inputs.max_rows, logits.shape[1])
        self._logits[:n].copy_(logits)


class CudaGraphCapture:
    """Records with CUDA graphs that share one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        # One for all: libraries keep room to work in for every stream they have seen.
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        # Once before, beside: libraries allocate and kernels are compiled on their first call.
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream), _waiting_raises():
            run()
        before.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile; only this one is recorded.
        recording = torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        )
        try:
            with recording:
                run()
        finally:
            torch.cuda.set_stream(before)  # where a recording fails torch leaves its own in place
        replay: Callable[[], None] = graph.replay
        return replay


@contextmanager
def _waiting_raises() -> Iterator[None]:
    """RuntimeError where the host waits for the device, of whatever thread: that can't be
    recorded, and some versions of torch don't get over the attempt.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says of itself that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def record_decodes(
    decode: Decode, storage: Storage, max_rows: int, max_tokens: int
) -> DecodeGraphs:
    """To be called on the thread that will replay them, when the model has run once."""
    graphs = DecodeGraphs(decode, StaticInputs(storage, max_rows, max_tokens), CudaGraphCapture())
    graphs.record()
    return graphs


def _told(keys: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    for done, key in enumerate(keys):
        yield key
        if (done + 1) % 8 == 0 or done + 1 == len(keys):
            log.info("recorded %d of %d decodes", done + 1, len(keys))
