"""Penalties on tokens that were said before, wherever they stood.

A row's logits are touched where it said something, and nowhere else; all rows at once.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from deployments.engine.sampling.rows import Asking, SamplingRows
from deployments.engine.sampling.strategy import STRONG, SamplingStrategy
from deployments.engine.tasks.task import Task
from deployments.engine.tasks.token_counts import Said
from deployments.engine.transfer import to_device
from deployments.wire import SamplingParams

PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


class PenaltyStrategy(SamplingStrategy):
    """Repetition over prompt and output, presence and frequency over the output; with
    `penalty_last_n` all three over the last tokens of both."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        asking = rows.asking(_asks_for_penalties, *PENALTIES)
        if asking:
            _penalise(logits, asking, [_said(rows.tasks[row]) for row in asking.rows])


def _asks_for_penalties(params: SamplingParams) -> bool:
    penalties = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty)
    return params.penalty_last_n != 0 and penalties != (0, 0, 1)


def _said(task: Task) -> Said:
    last_n = task.sampling.penalty_last_n
    if task.said is None:
        noted = task.n_prompt if last_n is None and task.sampling.repetition_penalty != 1 else 0
        task.said = Said(task.tokens, noted)
    if last_n is None:
        task.said.see(task.n_prompt, task.n_tokens)
    else:
        task.said.see(0 if last_n < 0 else max(task.n_tokens - last_n, 0), task.n_tokens)
    return task.said


def _penalise(logits: Tensor, asking: Asking, said: Sequence[Said]) -> None:
    n = [len(one) for one in said]
    which = np.repeat(np.arange(len(said)), n)
    places = np.stack(
        [which, np.array(asking.rows)[which], np.concatenate([one.ids for one in said])]
    )
    which_of, row, token_id = to_device(places, logits.device)
    counts = to_device(np.concatenate([one.counts for one in said]), logits.device)
    noted = to_device(np.concatenate([one.noted for one in said]), logits.device)
    repetition, presence, frequency = (
        asking.column(name)[which_of, 0].clamp(least, STRONG)
        for name, least in zip(PENALTIES, (1 / STRONG, -STRONG, -STRONG), strict=True)
    )
    were_said = counts > 0
    x = logits[row, token_id]
    scaled = torch.where(x > 0, x / repetition, x * repetition)
    x = torch.where(were_said | noted, scaled, x)
    logits[row, token_id] = x - (presence * were_said + frequency * counts)
