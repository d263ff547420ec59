"""Penalties on tokens that were said before, wherever they stood."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.strategy import STRONG, SamplingRows, SamplingStrategy
from deployments.engine.task import Task
from deployments.wire import SamplingParams

PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


class PenaltyStrategy(SamplingStrategy):
    """Repetition over prompt and output, presence and frequency over the output; with
    `penalty_last_n` all three over the last tokens of both."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_asks_for_penalties, *PENALTIES):
            _penalise(logits[row], rows.tasks[row])


def _asks_for_penalties(params: SamplingParams) -> bool:
    penalties = (params.presence_penalty, params.frequency_penalty, params.repetition_penalty)
    return params.penalty_last_n != 0 and penalties != (0, 0, 1)


def _penalise(logits: Tensor, task: Task) -> None:
    params = task.sampling
    counts = _count(task, logits)
    said = counts > 0
    if params.repetition_penalty != 1:
        seen = said | _in_prompt(task, said) if params.penalty_last_n is None else said
        factor = min(max(params.repetition_penalty, 1 / STRONG), STRONG)
        scaled = torch.where(logits > 0, logits / factor, logits * factor)
        logits.copy_(torch.where(seen, scaled, logits))
    presence, frequency = _bounded(params.presence_penalty), _bounded(params.frequency_penalty)
    logits -= presence * said + frequency * counts


def _in_prompt(task: Task, like: Tensor) -> Tensor:
    """Which tokens are in the prompt: looked up once, for prompts are long. [vocab] of bool"""
    if task.in_prompt is None:
        task.in_prompt = torch.zeros_like(like)
        task.in_prompt[_on(like, task.tokens[: task.n_prompt])] = True
    return task.in_prompt


def _bounded(penalty: float) -> float:
    return min(max(penalty, -STRONG), STRONG)


def _count(task: Task, logits: Tensor) -> Tensor:
    """Occurrences of each token in what the penalties see [vocab], brought up to date."""
    first = _first_seen(task)
    if task.token_counts is None:
        task.token_counts = torch.zeros_like(logits)
        task.first_counted = task.n_counted = first
    _add(task.token_counts, task.tokens[task.n_counted : task.n_tokens], 1)
    _add(task.token_counts, task.tokens[task.first_counted : first], -1)
    task.first_counted, task.n_counted = first, task.n_tokens
    return task.token_counts


def _first_seen(task: Task) -> int:
    last_n = task.sampling.penalty_last_n
    if last_n is None:
        return task.n_prompt
    return 0 if last_n < 0 else max(task.n_tokens - last_n, 0)


def _add(counts: Tensor, token_ids: NDArray[np.int64], amount: int) -> None:
    if len(token_ids):
        ids = _on(counts, token_ids)
        counts.index_add_(0, ids, torch.full_like(ids, amount, dtype=counts.dtype))


def _on(like: Tensor, token_ids: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(token_ids).to(like.device)
