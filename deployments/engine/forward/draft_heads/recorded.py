"""A head's passes over single tokens on a CPU, as one recorded call of kernels.

A pass of a small head takes less time than Python takes to call its kernels. So all passes of a
draft are one call: each draws its token itself, and the next one reads it from memory. The tokens
are those that passes one by one would draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deployments.engine.attention.cpu import CpuAttention
from deployments.engine.attention.cpu_rows import DecodeRows
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.cpu_recording import (
    MIN_TABLE_PAGES,
    NotRecordableError,
    Recorder,
)
from deployments.engine.forward.draft_heads.carried_states import Places
from deployments.engine.forward.draft_heads.eagle import EagleHead
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.linear import KernelLinear
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.dispatch import (
    MAX_RECORDED_TOKENS,
    TEAM,
    Call,
    CallSequence,
)
from deployments.engine.kernels.cpu.features import is_cpu_bf16
from deployments.engine.kernels.rotary import RotaryEmbedding
from kv.arrays import IntArray
from kv.storage import Storage
from kv.view import KvcacheView

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


@dataclass(frozen=True, slots=True)
class SingleTokens:
    """The newest tokens of some rows.

    token_ids, positions: [rows]. page_table: [groups, rows, pages]. stale_tails: as of a step.
    """

    token_ids: Sequence[int]
    positions: Sequence[int]
    page_table: IntArray
    stale_tails: IntArray


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

    def read(
        self,
        token_ids: Tensor,
        states: Tensor,
        rows: Tensor,
        positions: Tensor,
        step: FusedStepAttention,
    ) -> Tensor:
        """Reads tokens by the kernels of a recording, without one. `rows` are those of `states`
        [states, hidden] that they are read with; all others [tokens]. Returns the layer's output.
        [tokens, hidden]"""
        joined = self._head.layer.join_by_kernel(token_ids, self._embeddings, states, rows)
        output: Tensor = self._head.layer(*joined, self._head.rotary(positions), step)
        return output

    def store_unrecorded(
        self,
        token_ids: Tensor,
        states: Tensor,
        rows: Tensor,
        positions: Tensor,
        step: FusedStepAttention,
    ) -> None:
        """The same, for what is stored of them alone."""
        read, _ = self._head.layer.join_by_kernel(token_ids, self._embeddings, states, rows)
        self._head.layer.store(read, self._head.rotary(positions), step)

    def guess(
        self, newest: SingleTokens, states: Tensor, rows: Sequence[int], draws: Draws
    ) -> IntArray | None:
        """The tokens that follow the newest ones, each pass reading what the one before has drawn.

        The page table has room for all that are read. states: [states, hidden], of which the
        first pass reads these `rows` [rows]. Returns [passes, rows], which the next call
        overwrites; None if that can't be recorded: the caller then makes the passes itself.
        """
        n_passes, n = draws.keys.shape
        if TEAM is None or n * n_passes > MAX_RECORDED_TOKENS or not self._fits(draws):
            return None
        table = newest.page_table[self._storage.group_of[0]]
        inputs = self._inputs
        if inputs is None or not inputs.has_room_for(table, states, draws):
            inputs = self._inputs = _StaticPasses(self._head, self._storage, table, states, draws)
            self._passes.clear()
            self._sequences.clear()
        inputs.load(newest, table, rows, draws)
        if (calls := self._sequence(inputs, n, n_passes)) is None:
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
        if self._stored is None or self._stored.states.data_ptr() != states.data_ptr():
            self._stored = _StaticTokens(self._head, tapped, states)
            self._stores.clear()
        table = step.page_table[self._storage.group_of[0]]
        rows = [row for row, n_new in enumerate(step.new_len.tolist()) for _ in range(n_new)]
        slots = _slots(self._storage, table, rows, step.positions.tolist())
        self._stored.load(step, tapped, places, slots)
        if n not in self._stores:
            self._stores[n] = self._record_store(self._stored, n, step)
        if (calls := self._stores[n]) is None:
            return False
        calls()
        return True

    def _record_store(
        self, inputs: "_StaticTokens", n: int, given: StepInputs
    ) -> CallSequence | None:
        head, recorder = self._head, Recorder(inputs.buffers)
        table = given.page_table[self._storage.group_of[0]]
        view = KvcacheView(self._storage, table, given.total_len, inputs.slots[:n])
        step = CpuAttention(view, [], None, None, has_kernels=True)
        rotary = inputs.rotary.map(lambda part: part[:n])
        tokens = inputs.token_ids[:n], self._embeddings, inputs.states, inputs.before[:n]
        try:
            with recorder.running():
                recorder.begin_layer()
                joined = head.join(inputs.tapped[:n])
                read, _ = head.layer.join_by_kernel(*tokens, joined, inputs.kept_at[:n])
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

    def _sequence(self, inputs: "_StaticPasses", n: int, n_passes: int) -> CallSequence | None:
        if (n, n_passes) not in self._sequences:
            calls = list[Call]()
            for number in range(n_passes):
                if (n, number) not in self._passes:
                    self._passes[n, number] = self._record(inputs, n, number)
                if (found := self._passes[n, number]) is None:
                    return None
                calls += found
            self._sequences[n, n_passes] = CallSequence(calls)
        return self._sequences[n, n_passes]

    def _record(self, inputs: "_StaticPasses", n: int, number: int) -> list[Call] | None:
        """Records pass `number` over `n` rows, behind which its state is in a buffer."""
        head, begin = self._head, number * n
        recorder = Recorder(inputs.buffers)
        states, rows = inputs.states_before(number, n)
        rotary = inputs.rotary.map(lambda part: part[begin : begin + n])
        step = inputs.attention(begin, n)
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
    """The memory that recordings read and compute in, for MAX_RECORDED_TOKENS tokens in all. Those
    of a pass are behind those of the pass before it."""

    def __init__(
        self, head: EagleHead, storage: Storage, table: IntArray, states: Tensor, draws: Draws
    ) -> None:
        n = MAX_RECORDED_TOKENS
        self._head, self._storage = head, storage
        self.buffers: dict[object, Tensor] = {}
        self.rotary = _static_rotary(head)
        width = MIN_TABLE_PAGES
        while width < table.shape[1]:
            width *= 2
        self._table = np.zeros((n, width), dtype=np.int64)
        self._every = np.arange(n)
        self._lengths = np.zeros(n, dtype=np.int64)
        columns = torch.zeros(4, n, dtype=torch.int64)
        self._slots, self._positions, self._states_rows, self.keys = columns
        self.states, self.own = states, dict[int, Tensor]()  # own: those behind a pass
        self.token_ids = torch.zeros(1 + n, n, dtype=torch.int64)  # [passes, rows]
        self.temperatures = torch.zeros(n)
        self.scaled = torch.empty(n, draws.vocab_size)

    def has_room_for(self, table: IntArray, states: Tensor, draws: Draws) -> bool:
        is_known = states.data_ptr() == self.states.data_ptr()
        has_width = self.scaled.shape[1] == draws.vocab_size
        return is_known and has_width and table.shape[1] <= self._table.shape[1]

    def states_before(self, number: int, n: int) -> tuple[Tensor, Tensor]:
        """The states that a pass reads, and which rows of them."""
        if number == 0:
            return self.states, self._states_rows[:n]
        return self.own[number - 1], torch.from_numpy(self._every[:n])

    def attention(self, begin: int, n: int) -> CpuAttention:
        """The attention of a pass over `n` rows, whose tokens begin at `begin`."""
        table, lengths = self._table[:n], self._lengths[begin : begin + n]
        view = KvcacheView(self._storage, table, lengths, self._slots[begin : begin + n])
        return CpuAttention(view, [], DecodeRows(self._every[:n], table, lengths), None, True)

    def load(
        self, newest: SingleTokens, table: IntArray, rows: Sequence[int], draws: Draws
    ) -> None:
        (n_passes, n), n_tokens = draws.keys.shape, draws.keys.size
        positions = [position + i for i in range(n_passes) for position in newest.positions]
        in_order = [*range(n)] * n_passes
        self._slots.numpy()[:n_tokens] = _slots(self._storage, table, in_order, positions)
        self._positions.numpy()[:n_tokens] = positions
        np.add(self._positions.numpy()[:n_tokens], 1, out=self._lengths[:n_tokens])
        rotary = self.rotary.map(lambda part: part[:n_tokens])
        self._head.rotary_into(rotary, self._positions[:n_tokens])
        self._table[:n, : table.shape[1]] = table
        self.token_ids.numpy()[0, :n] = newest.token_ids
        self._states_rows.numpy()[:n] = rows
        self.temperatures.numpy()[:n] = draws.temperatures
        self.keys.numpy()[:n_tokens] = draws.keys.view(np.int64).ravel()


def _static_rotary(head: EagleHead) -> RotaryEmbedding:
    """Memory for the rotary embedding of all tokens."""
    like = head.rotary(torch.zeros(1, dtype=torch.int64))
    return like.map(lambda part: part.new_empty(MAX_RECORDED_TOKENS, *part.shape[1:]))


def _slots(
    storage: Storage, table: IntArray, rows: Sequence[int], positions: Sequence[int]
) -> list[int]:
    """The slots of tokens, for the only layer of the storage. `kv.view.token_slots` finds many in
    less time, and few in more."""
    size, stride = storage.page_size, storage.page_stride[0]
    return [
        int(table[row, position // size]) * stride + position % size
        for row, position in zip(rows, positions, strict=True)
    ]


class _StaticTokens:
    """The memory that a step's tokens are read from, MAX_RECORDED_TOKENS of them."""

    def __init__(self, head: EagleHead, tapped: Tensor, states: Tensor) -> None:
        n = MAX_RECORDED_TOKENS
        self._head = head
        self.buffers: dict[object, Tensor] = {}
        self.rotary = _static_rotary(head)
        self.tapped, self.states = tapped.new_empty(n, tapped.shape[1]), states
        columns = torch.zeros(4, n, dtype=torch.int64)
        self.token_ids, self.before, self.kept_at, self.slots = columns
        self._columns = columns.numpy()

    def load(self, step: StepInputs, tapped: Tensor, places: Places, slots: Sequence[int]) -> None:
        n = len(tapped)
        columns = step.token_ids, places.from_step, places.rows, slots
        for static, given in zip(self._columns, columns, strict=True):
            static[:n] = given
        rotary = self.rotary.map(lambda part: part[:n])
        self._head.rotary_into(rotary, torch.from_numpy(step.positions))
        self.tapped[:n] = tapped


def recorded_passes(
    head: object, embed: nn.Module, lm_head: nn.Module, storage: Storage
) -> RecordedPasses | None:
    """None where a head's passes can't be recorded: those of another one than EAGLE's, on a GPU, in
    another dtype than bfloat16, or with embeddings or a last matrix that are not its own or the
    model's as they were."""
    if not isinstance(head, EagleHead) or not isinstance(lm_head, KernelLinear):
        return None
    embeddings = _plain_embeddings(embed)
    if embeddings is None or not is_cpu_bf16(storage.k[0]):
        return None
    return RecordedPasses(head, embeddings, lm_head, storage)


def _plain_embeddings(embed: nn.Module) -> Tensor | None:
    """The vectors [vocab, hidden] of a lookup, if it does nothing else in bfloat16 on a CPU."""
    weight = getattr(embed, "weight", None)
    if type(embed) is not nn.Embedding or embed._forward_hooks or embed._forward_pre_hooks:
        return None
    if weight is None or type(weight.data) is not Tensor or not is_cpu_bf16(weight):
        return None
    return weight.detach() if weight.is_contiguous() else None
