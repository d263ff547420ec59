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
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from deployments.engine.attention.gpu import MAX_SMALL_CHUNK, NO_SLOT, TritonAttention
from deployments.engine.attention.grouped import plan_by_layer
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.attention.tiles import tile
from deployments.engine.out_of_memory import is_out_of_memory, release_memory
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage

if TYPE_CHECKING:
    from deployments.engine.forward.adapters.slots import AdapterSlots
    from deployments.engine.forward.inputs import StepInputs
    from deployments.engine.kernels.gpu.attention_ops import Attention

log = logging.getLogger(__name__)

# token_ids [tokens], positions [tokens], logit_indices [logits], step -> logits [logits, vocab]
Decode = Callable[[Tensor, Tensor, Tensor, FusedStepAttention], Tensor]
# Captures a function that works on static tensors. Returns a function that replays it.
Capture = Callable[[Callable[[], None]], Callable[[], None]]

NO_CHUNKS, SOME_CHUNKS = np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
# Tokens of a step with chunks: of drafts, or of short prompts. Larger ones hide their launches.
CHUNK_SIZES = (8, 16, MAX_SMALL_CHUNK)
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


class GraphKey(NamedTuple):
    """The steps that one graph serves."""

    tokens: int  # of a step, which is padded to them; as many rows have room
    max_context: int  # tokens of a row
    has_chunks: bool
    has_adapters: bool = False


@dataclass(frozen=True, slots=True)
class CapturedAttention(TritonAttention):
    """The attention of a captured step, whose chunks are wherever the tiles in memory say."""

    static_tiles: Callable[[int], Tensor] | None = None

    def _attend_chunks(self, attention: "Attention", out: Tensor, q: Tensor) -> Tensor:
        assert self.static_tiles is not None
        tiles = self.static_tiles(attention.tile_tokens(q.shape[1]))
        rows = self.page_table, self.total_len, self.starts
        attention.chunks(out, q, *rows, tiles, contexts=SOME_CHUNKS, multiprocessors=1)
        return out


class StaticInputs:
    """The inputs of small steps in static memory: of up to `max_rows` decodes, or of chunks with up
    to CHUNK_SIZES tokens. A row has up to `max_tokens` tokens."""

    def __init__(self, storage: Storage, max_rows: int, max_tokens: int) -> None:
        device = storage.device
        pages = -(-max_tokens // storage.page_size)
        self._storage = storage
        self.size = max(max_rows, CHUNK_SIZES[-1])
        shape = len(storage.groups), self.size, pages
        self._table = torch.zeros(shape, dtype=torch.int32, device=device)
        self._addresses = [*dict.fromkeys(storage.addressed_as)]  # layers, each with slots
        # [5 + addresses, size + 1]: token ids, positions, indices of logits, slots of each address;
        # of rows, tokens after the step and where each begins
        self._numbers = to_device(self._padding(0, 0, self.size), device)
        self._tiles: dict[int, Tensor] = {}  # [tiles, 2], by how many tokens a tile has
        self.max_rows = max_rows
        self.max_tokens = max_tokens

    def load(self, step: "StepInputs", n: int) -> None:
        """Copies a step, padded to `n` tokens. Does not wait for the copy to end."""
        rows = len(step.new_len)
        tokens = len(step.positions)
        numbers = self._padding(rows, tokens, n)
        numbers[0, :tokens] = step.token_ids
        has_own = len(step.rotary_positions) > 0
        numbers[1, :tokens] = step.rotary_positions if has_own else step.positions
        numbers[2, : len(step.logit_indices)] = step.logit_indices
        numbers[-2, :rows] = step.total_len
        numbers[-1, 1 : rows + 1] = step.new_len.cumsum()
        for row, layer in enumerate(self._addresses, 3):
            numbers[row, :tokens] = step.slots(self._storage, layer)
        device = self._numbers.device
        self._numbers.copy_(to_device(numbers, device), non_blocking=True)
        step.put_sampled(self._numbers[0, :tokens])
        table = step.device_table
        if table is None:
            table = torch.from_numpy(step.page_table.astype(np.int32))
            if device.type == "cuda":
                table = table.pin_memory()
        self._table[:, :rows, : table.shape[2]].copy_(table, non_blocking=True)
        self._load_tiles(step, n)

    def _load_tiles(self, step: "StepInputs", n: int) -> None:
        chunks = (step.new_len > 1).nonzero()[0]
        if not len(chunks):
            return
        for tokens, static in self._tiles.items():
            own = tile(chunks, step.new_len[chunks], step.total_len[chunks], tokens)
            tiles = np.empty((len(static), 2), dtype=np.int64)
            tiles[: len(own)] = own
            tiles[len(own) :] = n - 1, 1  # behind the token of a padding row
            static.copy_(to_device(tiles, static.device), non_blocking=True)

    def views(self, key: GraphKey) -> tuple[Tensor, Tensor, Tensor, FusedStepAttention]:
        """The arguments of a `Decode` for a graph's steps."""
        n = key.tokens
        token_ids, positions, logit_indices, *slots, total_len, _ = self._numbers[:, :n]

        def plan(layer: int) -> TritonAttention:
            return CapturedAttention(
                storage=self._storage,
                page_table=self._table[self._storage.group_of[layer], :n],
                total_len=total_len,
                starts=self._numbers[-1, : n + 1],
                slots=slots[self._addresses.index(layer)],
                chunk_rows=SOME_CHUNKS if key.has_chunks else NO_CHUNKS,
                chunk_len=NO_CHUNKS,
                chunk_total=NO_CHUNKS,
                max_decode_len=key.max_context,
                static_tiles=lambda tokens: self._static_tiles(tokens)[:n],
            )

        return token_ids, positions, logit_indices, plan_by_layer(self._storage, plan)

    def _static_tiles(self, tokens: int) -> Tensor:
        """There are never more tiles than tokens."""
        if tokens not in self._tiles:
            self._tiles[tokens] = self._numbers.new_ones(CHUNK_SIZES[-1], 2)
        return self._tiles[tokens]

    def _padding(self, rows: int, tokens: int, n: int) -> IntArray:
        """Returns the numbers that pad a step of so many rows and tokens to `n` tokens.

        Each padding token is a row.
        """
        numbers = np.zeros((5 + len(self._addresses), self.size + 1), dtype=np.int64)
        numbers[3:-2] = NO_SLOT
        numbers[-1, rows:] = np.minimum(tokens + np.arange(self.size + 1 - rows), n)
        return numbers


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
        if key is None or key not in self._replays or len(step.logit_indices) > key.tokens:
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
