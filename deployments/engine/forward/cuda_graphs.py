"""Captures small steps as CUDA graphs, one for each batch size, and replays them.

A replayed row has the result of an uncaptured step. Graphs read their inputs from static memory.
Each padding token is a row of its own, without a context and without a slot. So it writes nothing,
and no other row reads it.

Ranks that share a model capture the same graphs in the same order, and keep them only if all could.
A step's numbers on the host say whether a graph serves it, and which: they are the same on all.
"""

import logging
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.static_inputs import CHUNK_SIZES, GraphKey, StaticInputs
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from kv.storage import Storage

if TYPE_CHECKING:
    from deployments.engine.forward.adapters.slots import AdapterSlots
    from deployments.engine.forward.inputs import StepInputs

log = logging.getLogger(__name__)

# token_ids [tokens], positions [tokens], logit_indices [logits], step -> logits [logits, vocab]
Decode = Callable[[Tensor, Tensor, Tensor, FusedStepAttention], Tensor]
# Captures a function that works on static tensors. Returns a function that replays it.
Capture = Callable[[Callable[[], None]], Callable[[], None]]

# Tokens of a row with a chunk. A longer one is split among programs, whose number changes.
MAX_CHUNK_CONTEXT = 4096
# Graphs for contexts of at most this many tokens launch fewer programs.
SHORT_CONTEXT = 2048
# So few rows do not fill a GPU. Idle programs then cost nothing, and one graph serves all contexts.
SMALL_BATCH = 8
PROGRESS_INTERVAL = 8  # graphs between two log lines


def capture_sizes(max_rows: int) -> list[int]:
    """The batch sizes that are captured, ascending. A step is padded to the next one."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, max_rows, 64)]
    return [size for size in sizes if size < max_rows] + [max_rows]


class Peers(Protocol):
    """The ranks that share a model, this one among them."""

    def agree(self, is_done: bool) -> bool:
        """Whether it is done on all ranks. They all must ask."""

    def apart(self) -> AbstractContextManager[None]:
        """While the block computes on this rank, it waits for no other one."""


class Alone:
    """The peers of a model that no other rank shares."""

    def agree(self, is_done: bool) -> bool:
        return is_done

    def apart(self) -> AbstractContextManager[None]:
        return nullcontext()


ALONE = Alone()


class StepGraphs:
    """The captured steps of one model. They share one pool of memory."""

    def __init__(
        self,
        decode: Decode,
        inputs: StaticInputs,
        capture: Capture,
        *,
        has_chunks: bool = True,
        peers: Peers = ALONE,
        adapters: "AdapterSlots | None" = None,
    ) -> None:
        """`has_chunks`: whether steps with chunks are captured, too. `adapters`: those that rows
        may have; steps with some are captured beside those without."""
        self._peers = peers
        self._adapters = adapters
        if adapters is not None:
            adapters.make_static(inputs.size)
        self._decode = decode
        self._chunk_sizes = CHUNK_SIZES if has_chunks else ()
        self._inputs = inputs
        self._capture = capture
        self._sizes = capture_sizes(inputs.max_rows)
        self._replays: dict[GraphKey, Callable[[], None]] = {}
        self._logits: Tensor | None = None  # [tokens, vocab], the output of all graphs

    def __len__(self) -> int:
        return len(self._replays)

    @torch.inference_mode()
    def capture(self) -> None:
        """Captures all batch sizes. A model that can't be captured, or whose graphs do not fit into
        the memory of each rank's device, has no graphs afterwards. The log says why.

        Raises RuntimeError if another rank has ended.
        """
        keys = [*self._keys()]
        for n_done, key in enumerate(keys, 1):
            is_captured = self._try_capture(key, len(keys))
            if not self._peers.agree(is_captured):
                if is_captured:
                    log.warning("no rank has CUDA graphs: another one could not capture them")
                break
            if n_done % PROGRESS_INTERVAL == 0 or n_done == len(keys):
                log.info("captured %d of %d CUDA graphs", n_done, len(keys))
        else:
            return
        self._replays.clear()  # the error is gone, and with it the tensors that it held
        self._logits = None
        release_memory()

    def _try_capture(self, key: GraphKey, n_graphs: int) -> bool:
        try:
            self._replays[key] = self._capture(lambda: self._run(key))
        except RuntimeError as error:  # the model waits for the device, say to branch on a value
            if is_out_of_memory(error):
                log.error(
                    "the device has no memory for CUDA graphs: of %d only %d could be captured. "
                    "All are dropped, and decodes are slower than they could be. "
                    "Lower gpu_memory_utilization, kv_gib or max_running: %s",
                    *(n_graphs, len(self._replays), error),
                )
            else:
                log.warning("this model runs without CUDA graphs, it can't be captured: %s", error)
            return False
        return True

    def logits(self, step: "StepInputs") -> Tensor | None:
        """Replays a step. Returns [logits, vocab], which the next call overwrites.

        None if there is no graph for the step.
        """
        key = self._key(step)
        if (
            key is None
            or not self._inputs.can_load(step)
            or key not in self._replays
            or len(step.logit_indices) > key.tokens
        ):
            return None
        self._inputs.load(step, key.tokens)
        if key.has_adapters:
            assert self._adapters is not None
            self._adapters.load(step)
        self._replays[key]()
        assert self._logits is not None
        return self._logits[: len(step.logit_indices)]

    def _keys(self) -> Iterator[GraphKey]:
        """Yields the keys of all graphs.

        The largest graph of decodes is first: its memory is large enough for all others.
        """
        for has_adapters in (False, True)[: 1 + (self._adapters is not None)]:
            for has_chunks, sizes in ((False, self._sizes), (True, self._chunk_sizes)):
                for n in reversed(sizes):
                    for bound in self._context_bounds(n):
                        yield GraphKey(n, bound, has_chunks, has_adapters)

    def _context_bounds(self, n: int) -> Sequence[int]:
        bound = self._inputs.max_tokens
        return (bound,) if n <= SMALL_BATCH or bound <= SHORT_CONTEXT else (bound, SHORT_CONTEXT)

    def _key(self, step: "StepInputs") -> GraphKey | None:
        is_chunk = step.new_len > 1
        has_chunks = bool(is_chunk.any())
        if has_chunks and step.total_len[is_chunk].max() > MAX_CHUNK_CONTEXT:
            return None
        sizes = CHUNK_SIZES if has_chunks else self._sizes
        needed = max(
            len(step.positions), len(step.new_len) + has_chunks
        )  # tiles need a padding row
        if needed > sizes[-1]:
            return None
        n = sizes[bisect_left(sizes, needed)]
        longest = int(step.total_len.max())
        bound = min(bound for bound in self._context_bounds(n) if bound >= longest)
        return GraphKey(n, bound, has_chunks, len(step.adapter_slots) > 0)

    def _run(self, key: GraphKey) -> None:
        adapters = self._adapters if key.has_adapters else None
        with nullcontext() if adapters is None else adapters.running_static(key.tokens):
            logits = self._decode(*self._inputs.views(key))
        if self._logits is None:
            self._logits = logits.new_zeros(self._inputs.size, logits.shape[1])
        self._logits[: key.tokens].copy_(logits)


class CudaGraphCapture:
    """Captures functions as CUDA graphs that share one pool of memory."""

    def __init__(self, peers: Peers = ALONE) -> None:
        self._peers = peers
        self._pool = torch.cuda.graph_pool_handle()
        # One stream for all graphs: libraries keep a workspace for every stream that they see.
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        """Raises RuntimeError for a function that waits for the device."""
        # Warm up first: on their first call libraries allocate and kernels are compiled. Each rank
        # does so apart from the others, which would wait for one that fails. What is captured does
        # not run.
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream), _raise_on_sync(), self._peers.apart():
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


def capture_steps(
    decode: Decode,
    storage: Storage,
    max_rows: int,
    max_tokens: int,
    *,
    has_chunks: bool,
    peers: Peers = ALONE,
    adapters: "AdapterSlots | None" = None,
) -> StepGraphs:
    """Captures decode steps of up to `max_rows` rows of up to `max_tokens` tokens, and small steps
    with chunks if `has_chunks`. Rows may have `adapters`.

    Must be called on the thread that will replay them, after the model has run once: ranks are
    connected by then. Raises as `StepGraphs.capture`.
    """
    inputs = StaticInputs(storage, max_rows, max_tokens)
    graphs = StepGraphs(
        decode,
        inputs,
        CudaGraphCapture(peers),
        has_chunks=has_chunks,
        peers=peers,
        adapters=adapters,
    )
    graphs.capture()
    return graphs
