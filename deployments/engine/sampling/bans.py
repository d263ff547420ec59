"""What a request says of single tokens, come what may: biases, and tokens that must not follow."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import NEVER, STRONG, SamplingStrategy
from deployments.engine.tasks.task import Task
from deployments.engine.transfer import to_device
from deployments.wire import SamplingParams


class LogitBiasStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_asks_for_bias, "logit_bias"):
            ids, biases = zip(*rows.params[row].logit_bias, strict=True)
            bounded = torch.tensor(biases).clamp_(max=STRONG)  # infinite where numpy would warn
            logits[row, _places(ids, logits)] += to_device(bounded.numpy(), logits.device)


def _asks_for_bias(params: SamplingParams) -> bool:
    return bool(params.logit_bias)


class BadWordsStrategy(SamplingStrategy):
    """Bans the last token of a sequence where those before it have just been said."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_asks_for_bans, "bad_words"):
            banned = _banned_next(rows.tasks[row])
            if banned:
                logits[row, _places(banned, logits)] = NEVER


def _asks_for_bans(params: SamplingParams) -> bool:
    return bool(params.bad_words)


def _banned_next(task: Task) -> list[int]:
    if task.bad_words is None:
        task.bad_words = _by_beginning(task.sampling.bad_words)
    known = task.tokens[: task.n_tokens]
    banned: list[int] = []
    for n, lasts in task.bad_words.items():
        if n <= len(known):
            banned += lasts.get(known[len(known) - n :].tobytes(), [])
    return banned


def _by_beginning(words: tuple[tuple[int, ...], ...]) -> dict[int, dict[bytes, list[int]]]:
    """Last tokens by the bytes of those before them, by the number of those."""
    result: dict[int, dict[bytes, list[int]]] = {}
    for *beginning, last in words:
        lasts = result.setdefault(len(beginning), defaultdict(list))
        lasts[np.array(beginning, dtype=np.int64).tobytes()].append(last)
    return result


class MinTokensStrategy(SamplingStrategy):
    """No end token before `min_tokens`."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        tasks = rows.tasks
        for row in [row for row in rows.chosen if tasks[row].request.min_tokens]:
            task = tasks[row]
            if task.ends_banned and task.end_token_ids:
                logits[row, _places([*task.end_token_ids], logits)] = NEVER


def _places(token_ids: Sequence[int], logits: Tensor) -> Tensor:
    return to_device(np.array(token_ids, dtype=np.int64), logits.device)
