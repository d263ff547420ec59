"""Mirostat (Basu et al. 2021): truncation that keeps the surprise of sampled tokens near a target.

Its only state is a task's `mirostat_mu`: the largest surprise, in bits, that a token may have.
"""

from collections.abc import Sequence
from math import exp, expm1, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.requests import MirostatParams, SamplingParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BANNED, MAX_LOGIT_CHANGE, BaseSamplingStrategy
from deployments.engine.tasks.task import Task
from deployments.engine.transfer import Readback

N_ESTIMATED = 100  # most likely tokens that version 1 estimates Zipf's exponent from


class MirostatStrategy(BaseSamplingStrategy):
    """Bans tokens that would surprise more than the task's state allows."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in _mirostat_rows(rows):
            state, params = rows.tasks[row].sampling_state, _params(rows.tasks[row])
            if state.mirostat_mu is None:
                first = min(2.0 * params.tau, MAX_LOGIT_CHANGE)  # a large tau would overflow
                state.mirostat_mu = first if params.mu is None else params.mu
            if params.version == 1:
                _cut_by_rank(logits[row], state.mirostat_mu)
            else:
                _cut_by_surprise(logits[row], state.mirostat_mu)


class PendingSurprises:
    """How much the tokens that were sampled surprise, in the distribution that they were sampled
    from. The host does not wait for it before `observe`."""

    def __init__(self, logits: Tensor, rows: SamplingRows, token_ids: Tensor) -> None:
        """logits [rows, vocab], as all strategies left them; token_ids [rows]"""
        self._rows = rows
        found = [
            _surprises(logits[row]).gather(0, token_ids[row : row + 1])
            for row in _mirostat_rows(rows)
        ]
        self._readback = Readback(torch.cat(found)) if found else None

    def observe(self, sampled: Sequence[int | None]) -> None:
        """Updates the tasks' states by the tokens that count [rows]."""
        if self._readback is None:
            return
        (surprises,) = self._readback.tolist()
        found = zip(_mirostat_rows(self._rows), surprises, strict=True)
        for row, surprise in found:
            state, params = self._rows.tasks[row].sampling_state, _params(self._rows.tasks[row])
            if state.mirostat_mu is not None and sampled[row] is not None:
                mu = state.mirostat_mu - params.eta * (surprise - params.tau)
                state.mirostat_mu = min(max(mu, -MAX_LOGIT_CHANGE), MAX_LOGIT_CHANGE)


def _mirostat_rows(rows: SamplingRows) -> Sequence[int]:
    return rows.where(_has_mirostat, "mirostat")


def _has_mirostat(params: SamplingParams) -> bool:
    return params.mirostat is not None and params.temperature > 0


def _params(task: Task) -> MirostatParams:
    assert task.sampling.mirostat is not None
    return task.sampling.mirostat


def _surprises(logits: Tensor) -> Tensor:
    """Returns the surprise of each token, in bits. [vocab] float64"""
    return logits.double().log_softmax(0) / -log(2)


def _cut_by_surprise(logits: Tensor, mu: float) -> None:
    surprises = _surprises(logits)
    logits.masked_fill_(surprises > surprises.amin().clamp(min=mu), BANNED)


def _cut_by_rank(logits: Tensor, mu: float) -> None:
    ordered, order = logits.sort(descending=True, stable=True)
    top = ordered[:N_ESTIMATED].double().cpu().numpy()
    n_kept = _rank(top[np.isfinite(top)], mu, len(logits))
    logits[order[n_kept:]] = BANNED


def _rank(top: NDArray[np.float64], mu: float, vocab: int) -> int:
    """The last rank whose surprise is `mu`, if surprise follows Zipf's law with an exponent that
    is estimated from the logits of the most likely tokens, in descending order."""
    if len(top) < 2:
        return 1
    ranks = np.arange(1, len(top) + 1)
    steps = np.log(ranks[1:] / ranks[:-1])
    exponent = max(float(steps @ (top[:-1] - top[1:]) / (steps @ steps)), 1e-9)
    excess = exponent - 1
    share = 1 / log(vocab) if abs(excess) < 1e-9 else excess / -expm1(-excess * log(vocab))
    power = (log(share) + mu * log(2)) / exponent
    return max(int(exp(min(power, log(vocab)))), 1)
