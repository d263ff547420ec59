"""DRY (Don't Repeat Yourself, by p-e-w): the longer a repetition gets, the less it may go on."""

from math import log

import numpy as np
import torch
from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import STRONG, SamplingStrategy
from deployments.engine.tasks.repetitions import Repeats
from deployments.engine.tasks.task import Task
from deployments.wire import DryParams, SamplingParams


class DryStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_asks_for_dry, "dry"):
            dry = rows.params[row].dry
            if dry is not None and dry.multiplier > 0 and dry.last_n != 0:
                _penalise(logits[row], rows.tasks[row], dry)


def _asks_for_dry(params: SamplingParams) -> bool:
    return params.dry is not None


def _penalise(logits: Tensor, task: Task, dry: DryParams) -> None:
    if task.repeats is None:
        task.repeats = Repeats(len(task.tokens), dry.breakers)
    known = task.tokens[: task.n_tokens]
    window = len(known) if dry.last_n < 0 else dry.last_n
    allowed = min(dry.allowed_length, len(known))  # no repetition is as long
    ids, lengths = task.repeats.continuations(known, window, allowed)
    # In logarithms no power overflows.
    powers = log(dry.multiplier) + (lengths - allowed) * log(dry.base)
    penalties = np.exp(np.minimum(powers, log(STRONG))).astype(np.float32)
    on = logits.device
    logits[torch.from_numpy(ids).to(on)] -= torch.from_numpy(penalties).to(on)
