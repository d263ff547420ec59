"""One forward pass: the same inputs to the same weights give the same pages and logits.

This holds on every rank.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.cpu import plan_cpu_attention
from deployments.engine.attention.flash import FlashAttention, flash_version
from deployments.engine.attention.gpu import MAX_SMALL_CHUNK, attention_at
from deployments.engine.attention.grouped import plan_by_layer
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.attention.tumbling import Rows, rows_of_layer
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.attentions.indexed import indexers_of
from deployments.engine.forward.by_rows import ByRows, RowByRow
from deployments.engine.forward.cross_attention import current_states
from deployments.engine.forward.cuda_graphs import ALONE, Peers, StepGraphs, capture_steps
from deployments.engine.forward.decoder import Compute, decoder
from deployments.engine.forward.encoder import Encoder, EncoderWay
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.head import head
from deployments.engine.forward.input_vectors import InputVectors
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.recurrent import RecurrentLayers, sample_states
from deployments.engine.forward.state_pool import HostStates
from deployments.engine.forward.taps import StaticTaps, Taps
from deployments.engine.transfer import all_to_device, to_device
from kv.arrays import IntArray
from kv.storage import Storage


class Forward:
    """A model and the storage of its keys and values. Both may be one rank's share."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._device = storage.device
        self._is_on_gpu = self._device.type == "cuda"
        self._nothing = torch.empty(0, 0, device=self._device)

    @property
    def page_size(self) -> int:
        return self._storage.page_size

    @property
    def reads_host_table(self) -> bool:
        """Whether it needs the page table on the host."""
        return not self._is_on_gpu

    def capture(self, max_rows: int, max_tokens: int, tapped: Sequence[int] = ()) -> None:
        """On a GPU, captures decode steps of up to `max_rows` rows of up to `max_tokens` tokens,
        and small steps with chunks, where it can. All ranks that share the model must do so. The
        states that layers read which are `tapped` are there behind each.

        Must be called on the thread that will call `logits`. Raises RuntimeError if another rank
        has ended.
        """

    def host_states(self, model: PreTrainedModel) -> HostStates:
        """The states of its layers on a CPU, to be kept elsewhere, too. To be called before the
        first step, where layers of `model`, which is its own, keep some."""
        raise NotImplementedError

    def drop_graphs(self) -> None:
        """NCCL waits for the end of the graphs in which it was captured before ranks can part."""

    def logits(self, step: StepInputs) -> Tensor:
        """Computes a step. Returns [logits, vocab], which the next call may overwrite.

        Raises whatever the model raises.
        """
        raise NotImplementedError

    def compute(self, step: StepInputs) -> tuple[Tensor, Tensor]:
        """Returns the logits as `logits` does, and the hidden states that the step asks for.
        [states, taps * hidden]

        Raises UnsupportedModelError where layers can't be tapped.
        """
        return self.logits(step), self._nothing

    def tensor(self, array: IntArray) -> Tensor:
        """The array on the model's device."""
        return to_device(array, self._device)

    def _token_ids(self, step: StepInputs) -> tuple[Tensor, Tensor]:
        """Returns the ids of the step's tokens, and their positions. [tokens] each"""
        token_ids, positions = all_to_device([step.token_ids, step.positions], self._device)
        step.put_sampled(token_ids)
        return token_ids, positions

    def _vectors(self, step: StepInputs) -> InputVectors | None:
        if step.vectors is None:
            return None
        return InputVectors(self.tensor(step.vectors_at), step.vectors)

    def _clear_tails(self, step: StepInputs) -> None:
        if not self._is_on_gpu:  # the GPU kernels never read behind a row's end
            self._storage.clear_tails(step.stale_tails)


def make_forward(
    model: PreTrainedModel,
    execution: Execution,
    storage: Storage,
    n_state_slots: int = 1,
    peers: Peers = ALONE,
    adapters: AdapterSlots | None = None,
) -> Forward:
    """The forward pass of a model, by `execution`. `n_state_slots` are of layers that keep a state,
    `peers` the ranks that share the model. Rows may have the adapters in its slots `adapters`."""
    if execution.encoder is not None:
        return EncoderForward(model, execution.encoder, storage)
    if execution.by_rows is not None:
        return RowForward(model, execution.by_rows, storage)
    return DecoderForward(model, execution, storage, n_state_slots, peers, adapters)


class EncoderForward(Forward):
    """Computes whole prompts, of which it stores nothing."""

    def __init__(self, model: PreTrainedModel, way: EncoderWay, storage: Storage) -> None:
        super().__init__(storage)
        self._encoder = Encoder(model, way)

    def compute(self, step: StepInputs) -> tuple[Tensor, Tensor]:
        return self._nothing, self._encoder(step)


class RowForward(Forward):
    """Has transformers compute row by row."""

    def __init__(self, model: PreTrainedModel, how: ByRows, storage: Storage) -> None:
        super().__init__(storage)
        self._rows = RowByRow(model, how, storage)

    @property
    def reads_host_table(self) -> bool:
        return True

    def logits(self, step: StepInputs) -> Tensor:
        self._clear_tails(step)
        token_ids, _ = self._token_ids(step)
        return self._rows.logits(step, token_ids, self._vectors(step))


class DecoderForward(Forward):
    """Computes all rows of a step at once, with attention to pages."""

    def __init__(
        self,
        model: PreTrainedModel,
        execution: Execution,
        storage: Storage,
        n_state_slots: int,
        peers: Peers,
        adapters: AdapterSlots | None,
    ) -> None:
        super().__init__(storage)
        self._peers = peers
        self._adapters = adapters
        self._graphs: StepGraphs | None = None
        self._static_taps = StaticTaps()
        self._cross_attended = current_states(model)
        self._decode = decoder(model, adapters, execution.first_position)
        self._indexers = indexers_of(model)
        self._recurrent = RecurrentLayers(model, n_state_slots) if execution.has_states else None
        self._head = head(model)

    def capture(self, max_rows: int, max_tokens: int, tapped: Sequence[int] = ()) -> None:
        if not self._peers.agree(self._can_be_captured()):
            return
        if self._recurrent is not None:
            self._recurrent.make_static(max_rows)
        self._static_taps = StaticTaps(tapped, max(max_rows, MAX_SMALL_CHUNK), self._device)
        self._graphs = capture_steps(
            self._static_logits,
            self._storage,
            max_rows,
            max_tokens,
            has_chunks=self._recurrent is None,
            peers=self._peers,
            adapters=self._adapters,
        )

    def host_states(self, model: PreTrainedModel) -> HostStates:
        assert self._recurrent is not None, "its layers keep no states"
        return self._recurrent.host_states(sample_states(model))

    def _can_be_captured(self) -> bool:
        if not self._is_on_gpu or self._cross_attended is not None:
            return False
        return self._recurrent is None or self._recurrent.can_batch

    def drop_graphs(self) -> None:
        self._graphs = None

    def compute(self, step: StepInputs) -> tuple[Tensor, Tensor]:
        if not len(step.hidden_indices):
            return self.logits(step), self._nothing
        self._clear_tails(step)
        asked = step.taps.tolist(), len(step.token_ids), len(step.hidden_indices)
        if self._static_taps.serve(*asked) and (logits := self._replay(step)) is not None:
            return logits, self._static_taps.read(len(step.token_ids))
        taps = Taps(step.taps.tolist(), self.tensor(step.hidden_indices))
        with self._adapting(step), self._decode.tapped(taps):
            states = self._run(step, step.logit_indices, self._decode)
        # A product with no rows takes as long as one with a few.
        return self._head(states) if len(states) else self._nothing, taps.joined()

    def logits(self, step: StepInputs) -> Tensor:
        self._clear_tails(step)
        if (logits := self._replay(step)) is not None:
            return logits
        with self._adapting(step):
            return self._run(step, step.logit_indices, self._logits)

    def _adapting(self, step: StepInputs) -> AbstractContextManager[None]:
        """Within, the layers compute with the adapters of the step's rows."""
        if self._adapters is None or not len(step.adapter_slots):
            return nullcontext()
        return self._adapters.running(step)

    def _run(self, step: StepInputs, indices: IntArray, run: Compute) -> Tensor:
        """`run` is what is computed of the step, of its tokens with these indices."""
        token_ids, positions = self._token_ids(step)
        if len(step.rotary_positions):
            positions = self.tensor(step.rotary_positions)
        vectors = self._vectors(step)
        seen = None
        if self._indexers is not None:
            seen = self._indexers.seen_lengths(step.total_len, step.new_len)
        attention = step_attention(self._storage, step, seen)
        arguments = token_ids, positions, self.tensor(indices), attention
        with self._running(step):
            return run(*arguments, vectors)

    def _running(self, step: StepInputs) -> AbstractContextManager[None]:
        """Within, the layers find what is kept for the step's rows beside pages."""
        if self._recurrent is not None:
            return self._recurrent.running(step)
        if self._cross_attended is not None:
            return self._cross_attended.running(step.encoder_states)
        if self._indexers is not None:
            return self._indexers.running(step, self._storage)
        return nullcontext()

    def _replay(self, step: StepInputs) -> Tensor | None:
        """The logits of a step that a graph is captured of; None: there is none."""
        if self._graphs is None or step.vectors is not None:
            return None
        if step.rotary_positions.ndim > 1:
            return None
        if self._indexers is not None and self._indexers.must_choose(step.total_len):
            return None
        recurrent, is_decode = self._recurrent, bool((step.new_len == 1).all())
        if recurrent is not None and not (is_decode and recurrent.load(step.state_slots)):
            return None
        return self._graphs.logits(step)

    def _static_logits(
        self, token_ids: Tensor, positions: Tensor, indices: Tensor, attention: FusedStepAttention
    ) -> Tensor:
        """Computes `_logits` for a graph. Layers with states read their slots in static memory."""
        n, recurrent = len(token_ids), self._recurrent
        taps = self._static_taps.taps(n)
        running = nullcontext() if recurrent is None else recurrent.running_static(n)
        with running, self._decode.tapped(taps):
            states = self._decode(token_ids, positions, indices, attention)
        self._static_taps.keep(taps)
        return self._head(states)

    def _logits(
        self,
        token_ids: Tensor,
        positions: Tensor,
        indices: Tensor,
        attention: FusedStepAttention,
        vectors: InputVectors | None = None,
    ) -> Tensor:
        return self._head(self._decode(token_ids, positions, indices, attention, vectors))


def step_attention(
    storage: Storage, step: StepInputs, seen_len: IntArray | None = None
) -> FusedStepAttention:
    """The attention of a step, whose keys and values are in `storage`. `seen_len` [rows] is how
    many tokens of each row are attended to; None: all. Such layers have no windows that tumble."""
    is_on_gpu = storage.device.type == "cuda"

    def plan(layer: int) -> FusedStepAttention:
        table = step.table_of(storage.group_of[layer])
        rows = rows_of_layer(storage, layer, Rows(table, step.total_len, step.new_len))
        table, total_len, new_len = rows
        if not is_on_gpu:
            assert isinstance(table, np.ndarray)
            return plan_cpu_attention(
                storage, table, total_len, new_len, layer, step.spans, seen_len
            )
        slots, seen = step.slots(storage, layer), total_len if seen_len is None else seen_len
        attention = attention_at(storage, table, slots, seen, new_len, spans=step.spans)
        return attention if flash_version() is None else FlashAttention.from_triton(attention)

    return plan_by_layer(storage, plan)
