"""What one forward pass is computed from, as plain numbers, and the computing: the same everywhere.

Equal inputs to equal weights give equal pages and logits, on whatever rank.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.cpu import StepAttention, plan_attention
from deployments.engine.attention.flash import FlashStep, flash_version
from deployments.engine.attention.gpu import plan_paged
from deployments.engine.forward.cuda_graphs import DecodeGraphs, record_decodes
from deployments.engine.forward.decoder import decoder
from deployments.engine.transfer import to_device
from kv.storage import Storage

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A flat batch: the new tokens of its rows, row after row."""

    token_ids: Ints  # [tokens]
    positions: Ints  # [tokens], absolute
    total_len: Ints  # [rows], tokens of the row after this step
    new_len: Ints  # [rows], of which new
    page_table: Ints  # [rows, pages]
    kept: Ints  # places in the batch whose logits are wanted
    uncleared: Ints  # [places, 2], pages and how many of their first tokens stay
    # The token ids where the host does not know them yet: on the device, and on this rank alone.
    drawn: Tensor | None = None  # [tokens]

    def pack(self) -> Ints:
        """All of it in one array, for `unpack`."""
        assert self.drawn is None, "other ranks can't know these"
        rows, pages = self.page_table.shape
        sizes = [len(self.token_ids), rows, pages, len(self.kept)]
        return np.concatenate(
            [
                np.array(sizes, dtype=np.int64),
                self.token_ids,
                self.positions,
                self.total_len,
                self.new_len,
                self.page_table.ravel(),
                self.kept,
                self.uncleared.ravel(),
            ]
        )

    @staticmethod
    def unpack(packed: Ints) -> "StepInputs":
        tokens, rows, pages, kept = packed[:4].tolist()
        sizes = [4, tokens, tokens, rows, rows, rows * pages, kept]
        _, ids, positions, total, new, table, places, rest = np.split(packed, np.cumsum(sizes))
        table, rest = table.reshape(rows, pages), rest.reshape(-1, 2)
        return StepInputs(ids, positions, total, new, table, places, rest)


class Forward:
    """A model over the storage of its keys and values; both may be one rank's share."""

    def __init__(self, model: PreTrainedModel, storage: Storage) -> None:
        self._storage = storage
        self._device = storage.k.device
        self._has_kernels = self._device.type == "cuda"
        self._decode = decoder(model)
        self._recorded: DecodeGraphs | None = None

    def record(self, max_rows: int, max_tokens: int) -> None:
        """Records steps of one new token a row, on the thread that will replay them."""
        if self._has_kernels:
            self._recorded = record_decodes(self._decode, self._storage, max_rows, max_tokens)

    def logits(self, step: StepInputs) -> Tensor:
        """Behind the kept tokens, until the next step. [kept, vocab]"""
        if not self._has_kernels:  # which never read behind a row's end
            self._storage.clear_tails(step.uncleared)
        if self._recorded is not None and (found := self._recorded.logits(step)) is not None:
            return found
        token_ids, positions = self.tensor(np.stack([step.token_ids, step.positions]))
        if step.drawn is not None:
            token_ids = step.drawn
        return self._decode(token_ids, positions, self.tensor(step.kept), self._attention(step))

    def tensor(self, array: Ints) -> Tensor:
        return to_device(array, self._device)

    def _attention(self, step: StepInputs) -> StepAttention:
        parts = self._storage, step.page_table, step.total_len, step.new_len
        if not self._has_kernels:
            return plan_attention(*parts)
        planned = plan_paged(*parts)
        return planned if flash_version() is None else FlashStep.of(planned)
