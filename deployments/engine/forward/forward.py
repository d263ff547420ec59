"""What one forward pass is computed from, as plain numbers, and the computing: the same everywhere.

Equal inputs to equal weights give equal pages and logits, on whatever rank.
"""

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.cpu import plan_cpu_attention
from deployments.engine.attention.flash import FlashAttention, flash_version
from deployments.engine.attention.gpu import plan_triton_attention
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.cuda_graphs import DecodeGraphs, record_decodes
from deployments.engine.forward.decoder import decoder
from deployments.engine.forward.inputs import Ints, StepInputs
from deployments.engine.transfer import to_device
from kv.storage import Storage


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

    def _attention(self, step: StepInputs) -> FusedStepAttention:
        parts = self._storage, step.page_table, step.total_len, step.new_len
        if not self._has_kernels:
            return plan_cpu_attention(*parts)
        planned = plan_triton_attention(*parts)
        return planned if flash_version() is None else FlashAttention.of(planned)
