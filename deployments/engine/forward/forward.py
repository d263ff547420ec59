"""One forward pass: the same inputs to the same weights give the same pages and logits.

This holds on every rank.
"""

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.cpu import plan_cpu_attention
from deployments.engine.attention.flash import FlashAttention, flash_version
from deployments.engine.attention.gpu import plan_triton_attention
from deployments.engine.attention.grouped import plan_by_layer
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.cuda_graphs import StepGraphs, capture_steps
from deployments.engine.forward.decoder import decoder
from deployments.engine.forward.head import head
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.recurrent import RecurrentLayers, find_mixers
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage


class Forward:
    """A model and the storage of its keys and values. Both may be one rank's share."""

    def __init__(self, model: PreTrainedModel, storage: Storage) -> None:
        self._storage = storage
        self._device = storage.device
        self._is_on_gpu = self._device.type == "cuda"
        self._decode = decoder(model)
        self._recurrent = RecurrentLayers(model) if find_mixers(model) else None
        self._head = head(model)
        self._graphs: StepGraphs | None = None

    def capture(self, max_rows: int, max_tokens: int) -> None:
        """On a GPU, captures decode steps of up to `max_rows` rows of up to `max_tokens` tokens,
        and small steps with chunks.

        Must be called on the thread that will call `logits`.
        """
        if self._is_on_gpu and self._recurrent is None:
            self._graphs = capture_steps(self._logits, self._storage, max_rows, max_tokens)

    def logits(self, step: StepInputs) -> Tensor:
        """Computes a step. Returns [logits, vocab], which the next call may overwrite.

        Raises whatever the model raises.
        """
        if not self._is_on_gpu:  # the GPU kernels never read behind a row's end
            self._storage.clear_tails(step.stale_tails)
        if self._graphs is not None and (logits := self._graphs.logits(step)) is not None:
            return logits
        token_ids, positions = self.tensor(np.stack([step.token_ids, step.positions]))
        if step.sampled_ids is not None:
            token_ids = step.sampled_ids
        logit_indices = self.tensor(step.logit_indices)
        arguments = token_ids, positions, logit_indices, self._attention(step)
        if self._recurrent is None:
            return self._logits(*arguments)
        with self._recurrent.running(step):
            return self._logits(*arguments)

    def _logits(
        self, token_ids: Tensor, positions: Tensor, indices: Tensor, attention: FusedStepAttention
    ) -> Tensor:
        return self._head(self._decode(token_ids, positions, indices, attention))

    def tensor(self, array: IntArray) -> Tensor:
        """The array on the model's device."""
        return to_device(array, self._device)

    def _attention(self, step: StepInputs) -> FusedStepAttention:
        storage, lengths = self._storage, (step.total_len, step.new_len)

        def plan(layer: int) -> FusedStepAttention:
            table = step.page_table[storage.group_of[layer]]
            if not self._is_on_gpu:
                return plan_cpu_attention(storage, table, *lengths, layer)
            attention = plan_triton_attention(storage, table, *lengths, layer=layer)
            return attention if flash_version() is None else FlashAttention.from_triton(attention)

        return plan_by_layer(storage, plan)
