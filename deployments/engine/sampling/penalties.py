"""Penalties on tokens that a sequence holds already: wherever they stand, and where they would
prolong a repetition.

Only the logits of such tokens are touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.requests import DryParams, SamplingParams
from deployments.engine.sampling.rows import ParamGroup, SamplingRows
from deployments.engine.sampling.strategy import MAX_LOGIT_CHANGE, BaseSamplingStrategy
from deployments.engine.tasks.repetitions import Repetitions
from deployments.engine.tasks.task import Task
from deployments.engine.tasks.token_counts import TokenCounts
from deployments.engine.transfer import to_device
from kv.arrays import IntArray

PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


class PenaltyStrategy(BaseSamplingStrategy):
    """Repetition over prompt and output, presence and frequency over the output; with
    `penalty_last_n` all three over the last tokens of both. All rows are changed at once."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        group = rows.group(_has_penalties, *PENALTIES)
        if group:
            counts = [_count_tokens(rows, row) for row in group.rows]
            counted = _on_device(group, counts, logits.device)
            if rows.newest_ids is not None:
                assert rows.n_ahead is not None
                unknown = to_device(rows.n_ahead[group.rows].nonzero()[0], logits.device)
                counted = _with_newest(counted, group.take(rows.newest_ids), group, unknown)
            _penalise(logits, group, counted)


def _has_penalties(params: SamplingParams) -> bool:
    penalties = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty)
    return params.penalty_last_n != 0 and penalties != (0, 0, 1)


@dataclass(frozen=True, slots=True)
class _RowCounts:
    """The counts of one row, as `TokenCounts` has them. All are [tokens]."""

    ids: IntArray
    counts: NDArray[np.float32]
    in_prompt: NDArray[np.bool_]


def _count_tokens(rows: SamplingRows, row: int) -> _RowCounts:
    task = rows.tasks[row]
    last_n, state = task.sampling.penalty_last_n, task.sampling_state
    if state.token_counts is None:
        # The prompt counts for the repetition penalty alone, and only whether a token is in it.
        n_prompt = task.n_prompt if last_n is None and task.sampling.repetition_penalty != 1 else 0
        state.token_counts = TokenCounts(task.tokens, n_prompt)
    known, n_drafted = state.token_counts, rows.n_drafted_before(row)
    known.move_window(_first_counted(task, task.n_tokens), task.n_tokens)
    if n_drafted == 0:
        return _RowCounts(known.ids, known.counts, known.in_prompt)
    end = task.n_tokens + n_drafted
    counts = known.peek(_first_counted(task, end), end)
    return _RowCounts(known.ids, counts, known.in_prompt)


def _first_counted(task: Task, end: int) -> int:
    """Returns where the window that ends with the first `end` tokens begins."""
    last_n = task.sampling.penalty_last_n
    return task.n_prompt if last_n is None else max(end - last_n, 0) if last_n >= 0 else 0


@dataclass(frozen=True, slots=True)
class _Counted:
    """Tokens of a group's rows, on the device. All are [tokens]."""

    of_group: Tensor  # which row of the group
    row: Tensor  # the same row's number in the batch
    token_id: Tensor
    count: Tensor  # float32, how often it stands in the window
    in_prompt: Tensor  # bool


def _on_device(group: ParamGroup, counts: Sequence[_RowCounts], device: torch.device) -> _Counted:
    n = [len(row_counts.ids) for row_counts in counts]
    group_row = np.repeat(np.arange(len(counts)), n)
    index = np.stack(
        [
            group_row,
            np.array(group.rows)[group_row],
            np.concatenate([row_counts.ids for row_counts in counts]),
        ]
    )
    count = to_device(np.concatenate([row_counts.counts for row_counts in counts]), device)
    in_prompt = to_device(np.concatenate([row_counts.in_prompt for row_counts in counts]), device)
    of_group, row, token_id = to_device(index, device)
    return _Counted(of_group, row, token_id, count, in_prompt)


def _with_newest(counted: _Counted, newest: Tensor, group: ParamGroup, unknown: Tensor) -> _Counted:
    """Counts the token `newest` [rows] too, in each of the rows `unknown` [unknown].

    It gets an entry of its own, beside the one that it may have: both say the same.
    """
    is_newest = counted.token_id == newest[counted.of_group]
    before = newest.new_zeros(len(newest), dtype=torch.float32)
    count = before.index_add(0, counted.of_group, counted.count * is_newest) + 1
    in_prompt = before.index_add(0, counted.of_group, (counted.in_prompt & is_newest).float()) > 0
    return _Counted(
        torch.cat([counted.of_group, unknown]),
        torch.cat([counted.row, group.index[unknown]]),
        torch.cat([counted.token_id, newest[unknown]]),
        torch.cat([counted.count + is_newest, count[unknown]]),
        torch.cat([counted.in_prompt, in_prompt[unknown]]),
    )


def _penalise(logits: Tensor, group: ParamGroup, counted: _Counted) -> None:
    of_group, count = counted.of_group, counted.count
    repetition, presence, frequency = (
        group.column(name)[of_group, 0].clamp(least, MAX_LOGIT_CHANGE)
        for name, least in zip(
            PENALTIES, (1 / MAX_LOGIT_CHANGE, -MAX_LOGIT_CHANGE, -MAX_LOGIT_CHANGE), strict=True
        )
    )
    in_window = count > 0
    x = logits[counted.row, counted.token_id]
    scaled = torch.where(x > 0, x / repetition, x * repetition)
    x = torch.where(in_window | counted.in_prompt, scaled, x)
    logits[counted.row, counted.token_id] = x - (presence * in_window + frequency * count)


class DryStrategy(BaseSamplingStrategy):
    """DRY (Don't Repeat Yourself, by p-e-w): the longer a repetition is, the larger its penalty."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_has_dry, "dry"):
            dry = rows.params[row].dry
            if dry is not None and dry.multiplier > 0 and dry.last_n != 0:
                _penalise_repetitions(logits[row], rows.tasks[row], dry)


def _has_dry(params: SamplingParams) -> bool:
    return params.dry is not None


def _penalise_repetitions(logits: Tensor, task: Task, dry: DryParams) -> None:
    state = task.sampling_state
    if state.repetitions is None:
        state.repetitions = Repetitions(len(task.tokens), dry.breakers)
    known = task.tokens[: task.n_tokens]
    window = len(known) if dry.last_n < 0 else dry.last_n
    allowed = min(dry.allowed_length, len(known))  # no repetition is as long
    ids, lengths = state.repetitions.continuations(known, window, allowed)
    # In logarithms no power overflows.
    powers = log(dry.multiplier) + (lengths - allowed) * log(dry.base)
    penalties = np.exp(np.minimum(powers, log(MAX_LOGIT_CHANGE))).astype(np.float32)
    logits[to_device(ids, logits.device)] -= to_device(penalties, logits.device)
