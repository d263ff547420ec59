"""DRY (Don't Repeat Yourself, by p-e-w): the longer a repetition is, the larger its penalty."""

from math import log

import numpy as np
from torch import Tensor

from deployments.contract.requests import DryParams, SamplingParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import MAX_LOGIT_CHANGE, BaseSamplingStrategy
from deployments.engine.tasks.repetitions import Repetitions
from deployments.engine.tasks.task import Task
from deployments.engine.transfer import to_device


class DryStrategy(BaseSamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_has_dry, "dry"):
            dry = rows.params[row].dry
            if dry is not None and dry.multiplier > 0 and dry.last_n != 0:
                _penalise(logits[row], rows.tasks[row], dry)


def _has_dry(params: SamplingParams) -> bool:
    return params.dry is not None


def _penalise(logits: Tensor, task: Task, dry: DryParams) -> None:
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
