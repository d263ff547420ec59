"""Forward passes of a model that has a draft head: the head reads every token of a step.

It stores keys and values at a token's own position, of that token and of the state of the token
before it. So what a page holds depends on its own prefix alone, for the head as for the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.draft_heads.carried_states import NOBODY, CarriedStates, Places
from deployments.engine.forward.draft_heads.recorded import Draws, SingleTokens, recorded_passes
from deployments.engine.forward.forward import Forward, step_attention
from deployments.engine.forward.inputs import StepInputs
from kv.arrays import IntArray
from kv.storage import Storage


class DraftingHead(Protocol):
    """A head, as `EagleHead` and `MtpHead` are one."""

    def join(self, tapped: Tensor, /) -> Tensor:
        """Makes the states that the head reads [tokens, size] of what is tapped of the model
        [tokens, taps * hidden]."""
        ...

    def __call__(
        self, embedded: Tensor, states: Tensor, positions: Tensor, step: FusedStepAttention, /
    ) -> Tensor:
        """Reads embedded tokens, each with the state of the token before it, which may be changed.
        positions [tokens]. Returns its output; all others [tokens, size]."""
        ...

    def store(
        self, embedded: Tensor, states: Tensor, positions: Tensor, step: FusedStepAttention, /
    ) -> None:
        """Reads tokens, as a call does, for what is stored of them alone."""
        ...

    def own_states(self, output: Tensor, /) -> Tensor:
        """The states that stand for the model's own behind the tokens read last. [tokens, size]"""
        ...

    def logits(self, output: Tensor, lm_head: nn.Module, target_vocab_size: int, /) -> Tensor:
        """Logits behind the tokens read last. [tokens, target_vocab_size]"""
        ...


class HeadForward(Forward):
    """The layer of a head, between embeddings and a last matrix that may be the model's."""

    def __init__(
        self,
        head: DraftingHead,
        embed: nn.Module,
        lm_head: nn.Module,
        n_embeddings: int,
        storage: Storage,
    ) -> None:
        """`storage` is of the head's layer alone."""
        super().__init__(storage)
        self._head, self._embed, self._lm_head = head, embed, lm_head
        self._n_embeddings = n_embeddings
        self._passes = recorded_passes(head, embed, lm_head, storage)

    def join(self, tapped: Tensor) -> Tensor:
        """[tokens, taps * hidden] -> [tokens, size of a state]"""
        return self._head.join(tapped)

    def read(self, step: StepInputs, states: Tensor) -> Tensor:
        """Reads the tokens of a step, each with the state of the token before it [tokens, size],
        which may be changed. Returns the layer's output. [tokens, size]"""
        token_ids, positions = self._token_ids(step)
        attention = step_attention(self._storage, step)
        if self._passes is not None:
            every = torch.arange(len(token_ids))
            return self._passes.read(token_ids, states, every, positions, attention)
        return self._head(self._embedded(token_ids), states, positions, attention)

    def store(self, step: StepInputs, states: Tensor, rows: Tensor | None = None) -> None:
        """Reads the tokens of a step that the model has computed, as `read` does, for what is
        stored of them alone. The state before each is a row [tokens] of `states` [states, size]; by
        default there is one for each token."""
        token_ids, positions = self._token_ids(step)
        attention = step_attention(self._storage, step)
        if self._passes is not None:
            rows = torch.arange(len(token_ids)) if rows is None else rows
            self._passes.store_unrecorded(token_ids, states, rows, positions, attention)
            return
        states = states if rows is None else states.index_select(0, rows)
        self._head.store(self._embedded(token_ids), states, positions, attention)

    def _embedded(self, token_ids: Tensor) -> Tensor:
        """[tokens] -> [tokens, size]. The model may have some tokens more."""
        known = token_ids.masked_fill(token_ids >= self._n_embeddings, 0)
        embedded: Tensor = self._embed(known[None])[0]
        return embedded

    def store_tapped(
        self, step: StepInputs, tapped: Tensor, states: Tensor, places: Places
    ) -> bool:
        """Joins what is tapped [tokens, taps * hidden], writes it to its places, and reads the
        step's tokens as `store` does, where this is one call. Returns whether it is."""
        if self._passes is None or step.sampled_ids is not None:
            return False
        return self._passes.store(step, tapped, states, places)

    @property
    def can_guess_all(self) -> bool:
        """Whether there may be one call for several passes."""
        return self._passes is not None

    def guess_all(
        self, newest: SingleTokens, states: Tensor, rows: Sequence[int], draws: Draws
    ) -> IntArray | None:
        """The tokens [passes, rows] of several passes over single tokens, where they are one call:
        see `RecordedPasses.guess`."""
        assert self._passes is not None
        self._storage.clear_tails(newest.stale_tails)
        return self._passes.guess(newest, states, rows, draws)

    def guess(self, step: StepInputs, states: Tensor) -> tuple[Tensor, Tensor]:
        """Reads the tokens of a step of the head alone, as `read` does. Returns logits behind each,
        and states that stand for the model's own. [tokens, vocab], [tokens, size]"""
        self._clear_tails(step)
        output = self.read(step, states)
        logits = self._head.logits(output, self._lm_head, self._n_embeddings)
        return logits, self._head.own_states(output)


@dataclass(frozen=True, slots=True)
class HeadParts:
    """A head beside its model.

    tapped: the model's layers whose states it reads. storage: of all layers in the pages.
    """

    forward: HeadForward
    carried: CarriedStates
    tapped: Sequence[int]
    storage: Storage

    def around(self, own: Forward) -> "HeadedForward":
        """The forward pass of the model, whose own is given, with the head behind it."""
        return HeadedForward(own, self)


class HeadedForward(Forward):
    """The forward pass of a model, whose head reads each step behind it."""

    def __init__(self, own: Forward, parts: HeadParts) -> None:
        super().__init__(parts.storage)
        self._own, self._head, self._carried = own, parts.forward, parts.carried
        self._tapped = [*parts.tapped]

    @property
    def reads_host_table(self) -> bool:
        return self._own.reads_host_table

    def capture(self, max_rows: int, max_tokens: int, tapped: Sequence[int] = ()) -> None:
        self._own.capture(max_rows, max_tokens, [*self._tapped, *tapped])

    def drop_graphs(self) -> None:
        self._own.drop_graphs()

    def logits(self, step: StepInputs) -> Tensor:
        return self.compute(step)[0]

    def compute(self, step: StepInputs) -> tuple[Tensor, Tensor]:
        needs_own = len(step.hidden_indices) > 0
        taps = [*self._tapped, *(step.taps.tolist() if needs_own else ())]
        logits, hidden = self._own.compute(
            replace(
                step,
                hidden_indices=np.arange(len(step.token_ids)),
                taps=np.array(taps, dtype=np.int64),
            )
        )
        n_read = hidden.shape[1] // len(taps) * len(self._tapped)
        self._read(step, hidden[:, :n_read].contiguous())
        if not needs_own:
            return logits, self._nothing
        return logits, hidden[:, n_read:].index_select(0, self.tensor(step.hidden_indices))

    def _read(self, step: StepInputs, tapped: Tensor) -> None:
        """tapped: [tokens, taps * hidden]"""
        n, rows, carried = step.new_len, len(step.new_len), self._carried
        slots = step.head_slots if len(step.head_slots) else np.full(rows, NOBODY)
        if carried.has_room_for(slots, n):
            places = carried.place(slots, step.total_len, n)
            if self._head.store_tapped(step, tapped, carried.states, places):
                return
            kept_at, before = map(self.tensor, np.array([places.rows, places.before]))
            carried.states.index_copy_(0, kept_at, self._head.join(tapped))
            self._head.store(step, carried.states, before)
            return
        states = self._head.join(tapped)
        before = torch.roll(states, 1, 0)
        first = carried.before(slots, step.total_len - n)
        before.index_copy_(0, self.tensor(n.cumsum() - n), first)
        self._head.store(step, before)
        carried.keep(slots, step.total_len, n, states)
