"""Attention of tokens that choose, by an index, which tokens before them they attend to.

The tokens of rows that are not longer than what is chosen attend to all before them, as all others
do. Those of longer rows are computed here: each gathers the keys that it has chosen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage

# Numbers of scores, or of gathered keys, that are in memory at once.
MAX_NUMBERS, MAX_NUMBERS_GPU = 1 << 24, 1 << 26


class StepRows(Protocol):
    """The rows of a step, as its inputs have them."""

    @property
    def total_len(self) -> IntArray: ...

    @property
    def new_len(self) -> IntArray: ...

    def table_of(self, group: int) -> IntArray | Tensor: ...


class LongRow(NamedTuple):
    """A row of a step that is longer than what its tokens attend to."""

    row: int
    begin: int  # index in the batch of its first new token
    n_new: int
    total: int  # tokens after the step

    def blocks(self, n: int) -> Iterator[slice]:
        """The indices in the batch of its new tokens, at most `n` at once."""
        end = self.begin + self.n_new
        for begin in range(self.begin, end, n):
            yield slice(begin, min(begin + n, end))

    def positions(self, tokens: slice, device: torch.device) -> Tensor:
        """The positions in the row of tokens with these indices in the batch."""
        first = self.total - self.n_new - self.begin
        return torch.arange(first + tokens.start, first + tokens.stop, device=device)


class ChoosingRows:
    """The rows of a step that are longer than `n_chosen` tokens, and where their tokens lie."""

    def __init__(self, storage: Storage, step: StepRows, n_chosen: int) -> None:
        self.storage, self._step = storage, step
        starts = step.new_len.cumsum() - step.new_len
        self.rows = [
            LongRow(row, int(starts[row]), int(step.new_len[row]), int(step.total_len[row]))
            for row in (step.total_len > n_chosen).nonzero()[0].tolist()
        ]
        self._tables: dict[int, Tensor] = {}  # by group

    def pages(self, layer: int, row: LongRow) -> Tensor:
        """The pages of a row. [pages] int64"""
        group = self.storage.group_of[layer]
        if group not in self._tables:
            table = self._step.table_of(group)
            if isinstance(table, np.ndarray):
                table = to_device(np.ascontiguousarray(table), self.storage.device)
            self._tables[group] = table.long()
        return self._tables[group][row.row, : -(-row.total // self.storage.page_size)]

    def keys(self, layer: int, row: LongRow) -> Tensor:
        """All keys of a row. [tokens, kv_heads * head_dim]"""
        return self.storage.take_keys(layer, self.pages(layer, row))[: row.total]

    def slots(self, layer: int, row: LongRow, positions: Tensor) -> Tensor:
        """The layer's slots of a row's tokens at these positions, in the same shape."""
        size = self.storage.page_size
        pages = self.pages(layer, row)[positions // size]
        return pages * self.storage.page_stride[layer] + positions % size


class Chosen(NamedTuple):
    """The tokens that the new tokens of a row attend to."""

    row: LongRow
    positions: Tensor  # [tokens, n], ascending; those behind a token are none


@dataclass(frozen=True, slots=True)
class ChosenTokens:
    """The tokens that those of a step's long rows attend to, in one layer or in several."""

    rows: ChoosingRows | None = None
    chosen: Sequence[Chosen] = ()

    def attend_into(
        self, out: Tensor, layer: int, q: Tensor, scale: float, sinks: Tensor | None
    ) -> None:
        """Writes the results of these tokens, of q [tokens, heads, head_dim], into `out`, which is
        as what `StepAttention.attend` returns."""
        for row, chosen in self.chosen:
            assert self.rows is not None
            n = chosen.shape[1] * self.rows.storage.layout[layer].key_numbers
            for part in row.blocks(tokens_at_once(n, q)):
                positions = chosen[part.start - row.begin : part.stop - row.begin]
                keys, values = self.rows.storage.take(layer, self.rows.slots(layer, row, positions))
                hidden = positions > row.positions(part, q.device)[:, None]
                found = _attend(q[part], keys, values, hidden, scale, sinks)
                out[part, :, : found.shape[-1]] = found


def tokens_at_once(numbers: int, like: Tensor) -> int:
    """How many tokens are computed together that have so many numbers each, where `like` is."""
    return max(1, (MAX_NUMBERS_GPU if like.is_cuda else MAX_NUMBERS) // numbers)


def _attend(
    q: Tensor,  # [tokens, heads, head_dim]
    keys: Tensor,  # [tokens, n, kv_heads, head_dim]
    values: Tensor,  # [tokens, n, kv_heads, value_dim]
    hidden: Tensor,  # [tokens, n], those that a token does not see
    scale: float,
    sinks: Tensor | None,  # [heads]
) -> Tensor:
    """[tokens, heads, value_dim]"""
    n, heads, dim = q.shape
    grouped = q.view(n, keys.shape[2], -1, dim)
    scores = (grouped @ keys.to(q.dtype).permute(0, 2, 3, 1)) * scale
    scores = scores.flatten(1, 2).masked_fill(hidden[:, None], float("-inf"))
    if sinks is not None:
        column = sinks.view(1, -1, 1).expand(n, -1, 1).to(scores.dtype)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)[..., : keys.shape[1]]
    weights = weights.view(n, keys.shape[2], -1, keys.shape[1])
    mixed = weights @ values.to(q.dtype).transpose(1, 2)
    return mixed.reshape(n, heads, -1)
