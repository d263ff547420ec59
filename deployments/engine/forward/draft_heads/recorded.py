"""A head's passes over single tokens on a CPU, as one recorded call of kernels.

A pass of a small head takes less time than Python takes to call its kernels. So all passes of a
draft are one call: each draws its token itself, and the next one reads it from memory. The tokens
are those that passes one by one would draw.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deployments.engine.attention.cpu import CpuAttention, plan_cpu_attention
from deployments.engine.attention.cpu_rows import DecodeRows
from deployments.engine.forward.cpu_recording import (
    MAX_RECORDED_TOKENS,
    NotRecordableError,
    Recorder,
    StaticRows,
)
from deployments.engine.forward.draft_heads.carried_states import Places
from deployments.engine.forward.draft_heads.eagle import EagleHead
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.linear import KernelLinear
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.dispatch import TEAM, Call, CallSequence
from deployments.engine.kernels.cpu.features import is_cpu_bf16
from deployments.engine.kernels.rotary import RotaryEmbedding
from kv.arrays import IntArray
from kv.storage import Storage
from kv.view import KvcacheView, bind

Keys = NDArray[np.uint64]
Temperatures = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Draws:
    """How the tokens of some passes are drawn.

    temperatures: [rows], 0 for the likeliest token. keys: [passes, rows], of the noise. vocab_size:
    tokens of the model.
    """

    temperatures: Temperatures
    keys: Keys
    vocab_size: int


class RecordedPasses:
    """The recordings of one head, for the one thread that runs them."""

    def __init__(
        self, head: EagleHead, embeddings: Tensor, lm_head: KernelLinear, storage: Storage
    ) -> None:
        """embeddings: [vocab, hidden]. storage: of the head's layer alone."""
        self._head, self._embeddings, self._lm_head = head, embeddings, lm_head
        self._storage = storage
        self._inputs: _StaticPasses | None = None
        self._passes: dict[tuple[int, int], list[Call] | None] = {}  # by rows and number
        self._sequences: dict[tuple[int, int], CallSequence] = {}  # by rows and passes
        self._stored: _StaticTokens | None = None
        self._stores: dict[int, CallSequence | None] = {}  # by tokens

    def guess(
        self, step: StepInputs, states: Tensor, rows: IntArray, draws: Draws
    ) -> IntArray | None:
        """The tokens that follow single ones, each pass reading what the one before it has drawn.

        The step's page table has room for all that are read. states: [states, hidden], of which the
        first pass reads these `rows` [rows]. Returns [passes, rows], which the next call
        overwrites; None if that can't be recorded: the caller then makes the passes itself.
        """
        n_passes, n = draws.keys.shape
        if TEAM is None or n * n_passes > MAX_RECORDED_TOKENS or not self._fits(draws):
            return None
        positions = (step.positions + np.arange(n_passes)[:, None]).ravel()
        rotary = self._head.rotary(torch.from_numpy(positions))
        attention = self._attention(step, n_passes)
        inputs = self._inputs
        if inputs is None or not inputs.has_room_for(attention, states, draws):
            inputs = self._inputs = _StaticPasses(rotary, attention, states, draws)
            self._passes.clear()
            self._sequences.clear()
        inputs.load(step, rotary, attention, rows, draws)
        if (calls := self._sequence(inputs, n, n_passes, attention)) is None:
            return None
        calls()
        return inputs.token_ids.numpy()[1 : 1 + n_passes, :n]

    def store(self, step: StepInputs, tapped: Tensor, states: Tensor, places: Places) -> bool:
        """Joins what is tapped of the model, writes it to its places in `states`, and stores the
        keys and values of the step's tokens, each read with the state of the token before it.

        tapped: [tokens, taps * hidden]. states: [states, hidden]. Returns whether that can be
        recorded: else it has done nothing.
        """
        n = len(tapped)
        if TEAM is None or n > MAX_RECORDED_TOKENS or self._stores.get(n, True) is None:
            return False
        rotary = self._head.rotary(torch.from_numpy(step.positions))
        table = step.page_table[self._storage.group_of[0]]
        view = bind(self._storage, table, step.total_len, step.new_len)
        if self._stored is None or self._stored.states.data_ptr() != states.data_ptr():
            self._stored = _StaticTokens(rotary, tapped, states)
            self._stores.clear()
        self._stored.load(step, rotary, tapped, places, view.slots)
        if n not in self._stores:
            self._stores[n] = self._record_store(self._stored, n, view)
        if (calls := self._stores[n]) is None:
            return False
        calls()
        return True

    def _record_store(
        self, inputs: "_StaticTokens", n: int, view: KvcacheView
    ) -> CallSequence | None:
        head, recorder = self._head, Recorder(inputs.buffers)
        view = replace(view, slots=inputs.slots[:n])
        step = CpuAttention(view, [], None, None, has_kernels=True)
        rotary = RotaryEmbedding(*(part[:n] for part in inputs.rotary))
        tokens = inputs.token_ids[:n], self._embeddings, inputs.states, inputs.before[:n]
        try:
            with recorder.running():
                recorder.begin_layer()
                given = head.join(inputs.tapped[:n])
                read, _ = head.layer.join_by_kernel(*tokens, given, inputs.kept_at[:n])
                head.layer.store(read, rotary, step)
        except NotRecordableError:
            return None
        return CallSequence(recorder.calls)

    def _fits(self, draws: Draws) -> bool:
        """Whether what the head says are tokens of the model."""
        targets = self._head.target_ids
        if targets is None:
            return self._lm_head.out_features == draws.vocab_size
        return self._head.config.target_vocab_size <= draws.vocab_size

    def _attention(self, step: StepInputs, n_passes: int) -> CpuAttention:
        """The attention of all passes, one behind the other."""
        n = len(step.token_ids)
        table = np.tile(step.page_table[self._storage.group_of[0]], (n_passes, 1))
        lengths = (step.total_len + np.arange(n_passes)[:, None]).ravel()
        found = plan_cpu_attention(self._storage, table, lengths, np.ones_like(lengths))
        return replace(found, decodes=DecodeRows(np.tile(np.arange(n), n_passes), table, lengths))

    def _sequence(
        self, inputs: "_StaticPasses", n: int, n_passes: int, attention: CpuAttention
    ) -> CallSequence | None:
        if (n, n_passes) not in self._sequences:
            calls = list[Call]()
            for number in range(n_passes):
                if (n, number) not in self._passes:
                    self._passes[n, number] = self._record(inputs, n, number, attention)
                if (found := self._passes[n, number]) is None:
                    return None
                calls += found
            self._sequences[n, n_passes] = CallSequence(calls)
        return self._sequences[n, n_passes]

    def _record(
        self, inputs: "_StaticPasses", n: int, number: int, attention: CpuAttention
    ) -> list[Call] | None:
        """Records pass `number` over `n` rows, behind which its state is in a buffer."""
        head, begin = self._head, number * n
        recorder = Recorder(inputs.buffers)
        states, rows = inputs.states_before(number, n)
        rotary = RotaryEmbedding(*(part[begin : begin + n] for part in inputs.rotary))
        step = inputs.rows.view(begin, begin + n, attention)
        token_ids, temperatures = inputs.token_ids, inputs.temperatures[:n]
        try:
            with recorder.running():
                for _ in range(1 + number % 2):
                    recorder.begin_layer()
                joined = head.layer.join_by_kernel(
                    token_ids[number, :n], self._embeddings, states, rows
                )
                output = head.layer(*joined, rotary, step)
                inputs.own[number] = head.own_states(output)
                logits = self._lm_head(head.norm(output))
                layer_ops.guess_(
                    token_ids[number + 1, :n],
                    logits,
                    head.target_ids,
                    temperatures,
                    inputs.keys[begin : begin + n],
                    inputs.scaled[:n],
                )
        except NotRecordableError:
            return None
        return recorder.calls


class _StaticPasses:
    """The memory that recordings read and compute in, for MAX_RECORDED_TOKENS tokens in all."""

    def __init__(
        self, rotary: RotaryEmbedding, attention: CpuAttention, states: Tensor, draws: Draws
    ) -> None:
        n = MAX_RECORDED_TOKENS
        self.buffers: dict[object, Tensor] = {}
        self.rotary = RotaryEmbedding(*(part.new_empty(n, *part.shape[1:]) for part in rotary))
        self.rows = StaticRows(attention)
        self.states, self._states_rows = states, torch.zeros(n, dtype=torch.int64)
        self._every = torch.arange(n)
        self.own: dict[int, Tensor] = {}  # states behind a pass, by its number
        self.token_ids = torch.zeros(1 + n, n, dtype=torch.int64)  # [passes, rows]
        self.temperatures = torch.zeros(n)
        self.keys = torch.zeros(n, dtype=torch.int64)
        self.scaled = torch.empty(n, draws.vocab_size)

    def has_room_for(self, attention: CpuAttention, states: Tensor, draws: Draws) -> bool:
        is_known = states.data_ptr() == self.states.data_ptr()
        has_width = self.scaled.shape[1] == draws.vocab_size
        return is_known and has_width and self.rows.has_room_for(attention)

    def states_before(self, number: int, n: int) -> tuple[Tensor, Tensor]:
        """The states that a pass reads, and which rows of them."""
        if number == 0:
            return self.states, self._states_rows[:n]
        return self.own[number - 1], self._every[:n]

    def load(
        self,
        step: StepInputs,
        rotary: RotaryEmbedding,
        attention: CpuAttention,
        rows: IntArray,
        draws: Draws,
    ) -> None:
        n, n_tokens = len(rows), draws.keys.size
        self.token_ids.numpy()[0, :n] = step.token_ids
        self._states_rows.numpy()[:n] = rows
        self.temperatures.numpy()[:n] = draws.temperatures
        self.keys.numpy()[:n_tokens] = draws.keys.view(np.int64).ravel()
        for static, given in zip(self.rotary, rotary, strict=True):
            static[:n_tokens] = given
        self.rows.load(attention)


class _StaticTokens:
    """The memory that a step's tokens are read from, MAX_RECORDED_TOKENS of them."""

    def __init__(self, rotary: RotaryEmbedding, tapped: Tensor, states: Tensor) -> None:
        n = MAX_RECORDED_TOKENS
        self.buffers: dict[object, Tensor] = {}
        self.rotary = RotaryEmbedding(*(part.new_empty(n, *part.shape[1:]) for part in rotary))
        self.tapped, self.states = tapped.new_empty(n, tapped.shape[1]), states
        columns = torch.zeros(4, n, dtype=torch.int64)
        self.token_ids, self.before, self.kept_at, self.slots = columns
        self._columns = columns.numpy()

    def load(
        self,
        step: StepInputs,
        rotary: RotaryEmbedding,
        tapped: Tensor,
        places: Places,
        slots: Tensor,
    ) -> None:
        n = len(tapped)
        columns = step.token_ids, places.from_step, places.rows, slots.numpy()
        for static, given in zip(self._columns, columns, strict=True):
            static[:n] = given
        for part, now in zip((*self.rotary, self.tapped), (*rotary, tapped), strict=True):
            part[:n] = now


def recorded_passes(
    head: nn.Module, embed: nn.Module, lm_head: nn.Module, storage: Storage
) -> RecordedPasses | None:
    """None where a head's passes can't be recorded: on a GPU, in another dtype than bfloat16, or
    with embeddings or a last matrix that are not its own or the model's as they were."""
    if not isinstance(head, EagleHead) or not isinstance(lm_head, KernelLinear):
        return None
    embeddings = plain_embeddings(embed)
    if embeddings is None or not is_cpu_bf16(storage.k[0]):
        return None
    return RecordedPasses(head, embeddings, lm_head, storage)


def plain_embeddings(embed: nn.Module) -> Tensor | None:
    """The vectors [vocab, hidden] of a lookup, if it does nothing else in bfloat16 on a CPU."""
    weight = getattr(embed, "weight", None)
    if type(embed) is not nn.Embedding or embed._forward_hooks or embed._forward_pre_hooks:
        return None
    if weight is None or type(weight.data) is not Tensor or not is_cpu_bf16(weight):
        return None
    return weight.detach() if weight.is_contiguous() else None
