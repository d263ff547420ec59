"""Penalties on tokens that a sequence holds already, wherever they stand.

Only the logits of such tokens are touched, in all rows at once.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from deployments.engine.sampling.rows import ParamGroup, SamplingRows
from deployments.engine.sampling.strategy import MAX_LOGIT_CHANGE, BaseSamplingStrategy
from deployments.engine.tasks.task import Task
from deployments.engine.tasks.token_counts import TokenCounts
from deployments.engine.transfer import to_device
from deployments.wire import SamplingParams

PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


class PenaltyStrategy(BaseSamplingStrategy):
    """Repetition over prompt and output, presence and frequency over the output; with
    `penalty_last_n` all three over the last tokens of both."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        group = rows.group(_has_penalties, *PENALTIES)
        if group:
            _penalise(logits, group, [_count_tokens(rows.tasks[row]) for row in group.rows])


def _has_penalties(params: SamplingParams) -> bool:
    penalties = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty)
    return params.penalty_last_n != 0 and penalties != (0, 0, 1)


def _count_tokens(task: Task) -> TokenCounts:
    last_n, state = task.sampling.penalty_last_n, task.sampling_state
    if state.token_counts is None:
        # The prompt counts for the repetition penalty alone, and only whether a token is in it.
        n_prompt = task.n_prompt if last_n is None and task.sampling.repetition_penalty != 1 else 0
        state.token_counts = TokenCounts(task.tokens, n_prompt)
    first = task.n_prompt if last_n is None else task.n_tokens - last_n if last_n >= 0 else 0
    state.token_counts.move_window(max(first, 0), task.n_tokens)
    return state.token_counts


def _penalise(logits: Tensor, group: ParamGroup, counts: Sequence[TokenCounts]) -> None:
    n = [len(one) for one in counts]
    group_row = np.repeat(np.arange(len(counts)), n)
    index = np.stack(
        [group_row, np.array(group.rows)[group_row], np.concatenate([one.ids for one in counts])]
    )
    of_group, row, token_id = to_device(index, logits.device)
    count = to_device(np.concatenate([one.counts for one in counts]), logits.device)
    in_prompt = to_device(np.concatenate([one.in_prompt for one in counts]), logits.device)
    repetition, presence, frequency = (
        group.column(name)[of_group, 0].clamp(least, MAX_LOGIT_CHANGE)
        for name, least in zip(
            PENALTIES, (1 / MAX_LOGIT_CHANGE, -MAX_LOGIT_CHANGE, -MAX_LOGIT_CHANGE), strict=True
        )
    )
    in_window = count > 0
    x = logits[row, token_id]
    scaled = torch.where(x > 0, x / repetition, x * repetition)
    x = torch.where(in_window | in_prompt, scaled, x)
    logits[row, token_id] = x - (presence * in_window + frequency * count)
