"""The inputs of captured steps, in static memory.

Each padding token is a row of its own, without a context and without a slot. So it writes nothing,
and no other row reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from deployments.engine.attention.gpu import MAX_SMALL_CHUNK, NO_SLOT, TritonAttention
from deployments.engine.attention.grouped import plan_by_layer
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.attention.tiles import tile
from deployments.engine.attention.tumbling import (
    Rows,
    cut_rows,
    is_within_windows,
    tumbling_window,
)
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage

if TYPE_CHECKING:
    from deployments.engine.kernels.gpu.attention_ops import Attention

NO_CHUNKS, SOME_CHUNKS = np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
# Tokens of a step with chunks: of drafts, or of short prompts. Larger ones hide their launches.
CHUNK_SIZES = (8, 16, MAX_SMALL_CHUNK)


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
        windows = {number: tumbling_window(group) for number, group in enumerate(storage.groups)}
        self._tumbling = {number: window for number, window in windows.items() if window}
        # [5 + addresses + tumbling, size + 1]: token ids, positions, indices of logits, slots of
        # each address; of rows, tokens after the step in the windows of each group whose windows
        # tumble, tokens after the step, and where each begins
        self._numbers = to_device(self._padding(0, 0, self.size), device)
        self._tiles: dict[int, Tensor] = {}  # [tiles, 2], by how many tokens a tile has
        self.max_rows = max_rows
        self.max_tokens = max_tokens

    def load(self, step: StepInputs, n: int) -> None:
        """Copies a step, padded to `n` tokens. Does not wait for the copy to end."""
        rows = len(step.new_len)
        tokens = len(step.positions)
        numbers = self._padding(rows, tokens, n)
        numbers[0, :tokens] = step.token_ids
        has_own = len(step.rotary_positions) > 0
        numbers[1, :tokens] = step.rotary_positions if has_own else step.positions
        numbers[2, : len(step.logit_indices)] = step.logit_indices
        numbers[-2, :rows] = step.total_len
        tables = self._tables(step, numbers)
        numbers[-1, 1 : rows + 1] = step.new_len.cumsum()
        for row, layer in enumerate(self._addresses, 3):
            numbers[row, :tokens] = step.slots(self._storage, layer)
        device = self._numbers.device
        self._numbers.copy_(to_device(numbers, device), non_blocking=True)
        step.put_sampled(self._numbers[0, :tokens])
        for group, table in tables:
            self._table[group, :rows, : table.shape[-1]].copy_(table, non_blocking=True)
        self._load_tiles(step, n)

    def _tables(self, step: StepInputs, numbers: IntArray) -> list[tuple[int | slice, Tensor]]:
        """The page tables of groups. Those within tumbling windows have lengths of their own, which
        are written to `numbers`."""
        tables: list[tuple[int | slice, Tensor]] = []
        if len(self._tumbling) < len(self._storage.groups):
            every = step.page_table if step.device_table is None else step.device_table
            tables.append((slice(None), self._on_host(every)))
        for nth, (group, window) in enumerate(self._tumbling.items()):
            rows = Rows(step.table_of(group), step.total_len, step.new_len)
            own = cut_rows(window, self._storage.page_size, rows)
            numbers[3 + len(self._addresses) + nth, : len(own.total_len)] = own.total_len
            tables.append((group, self._on_host(own.page_table)))
        return tables

    def _on_host(self, table: IntArray | Tensor) -> Tensor:
        """A page table that can be copied to the device without waiting."""
        if isinstance(table, Tensor):
            return table
        host = torch.from_numpy(table.astype(np.int32))
        return host.pin_memory() if self._table.is_cuda else host

    def can_load(self, step: StepInputs) -> bool:
        """False for rows that would be cut: there is no room for their parts."""
        lengths = step.total_len, step.new_len
        return all(is_within_windows(window, *lengths) for window in self._tumbling.values())

    def _load_tiles(self, step: StepInputs, n: int) -> None:
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
        token_ids, positions, logit_indices, *own, total_len, _ = self._numbers[:, :n]
        slots, tumbled = own[: len(self._addresses)], own[len(self._addresses) :]
        lengths = dict(zip(self._tumbling, tumbled, strict=True))

        def plan(layer: int) -> TritonAttention:
            group = self._storage.group_of[layer]
            return CapturedAttention(
                storage=self._storage,
                page_table=self._table[group, :n],
                total_len=lengths.get(group, total_len),
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
        n_addresses = len(self._addresses)
        n_lines = 5 + n_addresses + len(self._tumbling)
        numbers = np.zeros((n_lines, self.size + 1), dtype=np.int64)
        numbers[3 : 3 + n_addresses] = NO_SLOT
        numbers[-1, rows:] = np.minimum(tokens + np.arange(self.size + 1 - rows), n)
        return numbers
