"""What one forward pass is computed from, as plain numbers, and the computing: the same everywhere.

Equal inputs to equal weights give equal pages and logits, on whatever rank.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention import plan_attention
from kv.storage import Storage
from kv.view import view_pages

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

    def pack(self) -> Ints:
        """All of it in one array, for `unpack`."""
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
        self._model = model
        self._storage = storage
        self._device = storage.k.device

    def logits(self, step: StepInputs) -> Tensor:
        """Behind the kept tokens. [kept, vocab]"""
        self._storage.clear_places(step.uncleared)
        total_len, new_len = self.tensor(np.stack([step.total_len, step.new_len]))
        view = view_pages(self._storage, self.tensor(step.page_table), total_len, new_len)
        logits: Tensor = self._model(
            input_ids=self.tensor(step.token_ids)[None],
            position_ids=self.tensor(step.positions)[None],
            use_cache=False,
            logits_to_keep=self.tensor(step.kept),
            step=plan_attention(view, torch.from_numpy(step.new_len)),
        ).logits[0]
        return logits

    def tensor(self, array: Ints) -> Tensor:
        return torch.from_numpy(array).to(self._device)
