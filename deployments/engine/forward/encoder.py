"""Runs encoders: whole prompts in, the hidden states of their tokens out, without pages.

All prompts of a step are one flat batch where the model's attention can be replaced. Else prompts
of the same length are a batch of the model's own. Nothing is ever padded.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.whole_rows import (
    WHOLE_ROWS_IMPLEMENTATION,
    WholeRows,
    current_rows,
)
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.transfer import to_device
from kv.arrays import IntArray

POSITIONS, TYPES = "position_ids", "token_type_ids"  # arguments of models


@dataclass(frozen=True, slots=True)
class EncoderWay:
    """How a model is run. first_position: that of a prompt's first token."""

    is_flat: bool
    first_position: int = 0
    takes_types: bool = False
    attention: str = "eager"  # transformers' implementation, where the batch is not flat


def takes(model: PreTrainedModel, argument: str) -> bool:
    """Whether the layers of a model are called with it."""
    return argument in inspect.signature(model.base_model.forward).parameters


class Encoder:
    """The layers of a model, as transformers has them."""

    def __init__(self, model: PreTrainedModel, way: EncoderWay) -> None:
        self._model = model.base_model
        self._way = way
        self._device = model.device
        self._current = current_rows(model)
        model.set_attn_implementation(WHOLE_ROWS_IMPLEMENTATION if way.is_flat else way.attention)

    def __call__(self, step: StepInputs) -> Tensor:
        """The hidden states of the tokens in `hidden_indices` [states, hidden]."""
        states = self._flat(step) if self._way.is_flat else self._by_length(step)
        if len(step.hidden_indices) == len(states):  # they are in order
            return states
        return states.index_select(0, self._tensor(step.hidden_indices))

    def _flat(self, step: StepInputs) -> Tensor:
        arguments = {
            "input_ids": self._tensor(step.token_ids)[None],
            POSITIONS: self._tensor(step.positions + self._way.first_position)[None],
        }
        if self._way.takes_types:
            arguments[TYPES] = self._tensor(_types(step))[None]
        with self._current.running(WholeRows(step.new_len, self._device)):
            states: Tensor = self._model(**arguments).last_hidden_state[0]
        return states

    def _by_length(self, step: StepInputs) -> Tensor:
        found: Tensor | None = None
        types = _types(step)
        for length, tokens in _tokens_by_length(step.new_len):
            arguments = {"input_ids": self._tensor(step.token_ids[tokens]).view(-1, length)}
            if self._way.takes_types:
                arguments[TYPES] = self._tensor(types[tokens]).view(-1, length)
            states: Tensor = self._model(**arguments).last_hidden_state.flatten(0, 1)
            if found is None:
                found = states.new_empty(len(step.token_ids), states.shape[1])
            found[self._tensor(tokens)] = states
        assert found is not None
        return found

    def _tensor(self, array: IntArray) -> Tensor:
        return to_device(array, self._device)


def _types(step: StepInputs) -> IntArray:
    """The type of each token: 1 in the second text of a row. [tokens]"""
    if not step.second_at.any():
        return np.zeros_like(step.token_ids)
    second = np.where(step.second_at > 0, step.second_at, np.iinfo(np.int64).max)
    return (step.positions >= np.repeat(second, step.new_len)).astype(np.int64)


def _tokens_by_length(lengths: IntArray) -> Iterator[tuple[int, IntArray]]:
    starts = lengths.cumsum() - lengths
    for length in np.unique(lengths).tolist():
        of_rows = starts[lengths == length]
        yield length, (of_rows[:, None] + np.arange(length)).ravel()


def whole_step(rows: list[IntArray], second_at: list[int]) -> StepInputs:
    """A step of whole prompts, that asks for the hidden states of all of their tokens."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    n_tokens = int(lengths.sum())
    return StepInputs(
        token_ids=np.concatenate(rows),
        positions=np.concatenate([np.arange(len(row)) for row in rows]),
        total_len=lengths,
        new_len=lengths,
        page_table=np.empty((1, len(rows), 0), dtype=np.int64),
        logit_indices=np.empty(0, dtype=np.int64),
        stale_tails=np.empty((0, 3), dtype=np.int64),
        hidden_indices=np.arange(n_tokens),
        second_at=np.array(second_at, dtype=np.int64),
    )


def alone(model: PreTrainedModel, row: IntArray, second_at: int, *, takes_types: bool) -> Tensor:
    """Returns the output of transformers' layers for one prompt [tokens, hidden]."""
    arguments = {"input_ids": torch.from_numpy(row)[None].to(model.device)}
    if takes_types:
        types = (np.arange(len(row)) >= (second_at or len(row))).astype(np.int64)
        arguments[TYPES] = torch.from_numpy(types)[None].to(model.device)
    states: Tensor = model.base_model(**arguments).last_hidden_state[0]
    return states
