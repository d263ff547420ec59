"""Biases of single tokens, and bans of tokens that must not follow."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BANNED, MAX_LOGIT_CHANGE, BaseSamplingStrategy
from deployments.engine.tasks.sampling_state import BadWords
from deployments.engine.tasks.task import Task
from deployments.engine.transfer import to_device


class LogitBiasStrategy(BaseSamplingStrategy):
    """Adds a number to the logits of some tokens."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_has_bias, "logit_bias"):
            ids, biases = zip(*rows.params[row].logit_bias, strict=True)
            # A float that is too large becomes infinite here; numpy would warn.
            bounded = torch.tensor(biases).clamp_(max=MAX_LOGIT_CHANGE)
            logits[row, _index(ids, logits)] += to_device(bounded.numpy(), logits.device)


def _has_bias(params: SamplingParams) -> bool:
    return bool(params.logit_bias)


class BadWordsStrategy(BaseSamplingStrategy):
    """Bans the last token of a sequence where the tokens before it are the newest ones."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_has_bad_words, "bad_words"):
            banned = _banned_next(rows.tasks[row], rows.n_tokens_before(row))
            if banned:
                logits[row, _index(banned, logits)] = BANNED


def _has_bad_words(params: SamplingParams) -> bool:
    return bool(params.bad_words)


def _banned_next(task: Task, n: int) -> list[int]:
    """Tokens that may not follow the first `n` of the task."""
    state = task.sampling_state
    if state.bad_words is None:
        state.bad_words = _by_prefix(task.sampling.bad_words)
    banned: list[int] = []
    for n_before, lasts in state.bad_words.items():
        if n_before <= n:
            banned += lasts.get(task.tokens[n - n_before : n].tobytes(), [])
    return banned


def _by_prefix(words: tuple[tuple[int, ...], ...]) -> BadWords:
    result: BadWords = {}
    for *prefix, last in words:
        lasts = result.setdefault(len(prefix), defaultdict(list))
        lasts[np.array(prefix, dtype=np.int64).tobytes()].append(last)
    return result


class MinTokensStrategy(BaseSamplingStrategy):
    """Bans end tokens before `min_tokens` of output."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        tasks = rows.tasks
        for row in [row for row in rows.selected if tasks[row].request.min_tokens]:
            task = tasks[row]
            n_output = rows.n_tokens_before(row) - task.n_prompt
            if n_output < task.request.min_tokens and task.end_token_ids:
                logits[row, _index([*task.end_token_ids], logits)] = BANNED


def _index(token_ids: Sequence[int], logits: Tensor) -> Tensor:
    return to_device(np.array(token_ids, dtype=np.int64), logits.device)
