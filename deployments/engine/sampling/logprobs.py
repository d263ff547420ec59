"""Log-probabilities of drawn tokens, and of tokens that are known already: those of a prompt."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from deployments.contract.events import TokenLogprob
from deployments.contract.requests import SamplingParams
from deployments.engine.sampling.rows import ParamGroup, SamplingRows
from deployments.engine.sampling.strategy import BANNED
from deployments.engine.transfer import Readback

SCORED_AT_ONCE = 64  # positions whose distributions are held at once


class PendingLogprobs:
    """Log-probabilities of a group's logits as they are now. The host does not wait for them before
    `result`."""

    def __init__(self, logits: Tensor, group: ParamGroup) -> None:
        self._group = group
        self._n = [params.logprobs or 0 for params in group.params]
        self._readback: Readback | None = None
        if group:
            self._all = group.take(logits).log_softmax(1)  # [rows, vocab]
            self._top = self._all.topk(min(max(self._n), logits.shape[1]), dim=1)

    def read(self, token_ids: Tensor) -> None:
        """Begins to bring those of the sampled tokens [batch] and the likeliest ones to the host.

        To be called once; nothing else of the distribution is kept.
        """
        if self._group:
            own = self._all.gather(1, self._group.take(token_ids)[:, None])
            columns = torch.cat([own.double(), self._top.values.double(), self._top.indices], 1)
            self._readback = Readback(columns)
            del self._all, self._top

    def result(self, sampled: Sequence[int | None]) -> dict[int, TokenLogprob]:
        """Returns log-probabilities by row number, for rows of the group where a token was sampled.

        sampled: [batch]
        """
        if self._readback is None:
            return {}
        (found,) = self._readback.tolist()
        columns = zip(self._group.rows, self._n, found, strict=True)
        return {
            row: TokenLogprob(token_id, own, _alternatives(top, n))
            for row, n, (own, *top) in columns
            if (token_id := sampled[row]) is not None
        }


def _alternatives(top: Sequence[float], n: int) -> tuple[tuple[int, float], ...]:
    """The first `n` of as many values, then their ids."""
    values, ids = top[: len(top) // 2], top[len(top) // 2 :]
    found = zip(ids[:n], values[:n], strict=True)
    return tuple((int(token_id), value) for token_id, value in found if value > BANNED)


def model_logprobs(logits: Tensor, rows: SamplingRows) -> PendingLogprobs:
    """The model's own distribution: to be taken before any strategy changes the logits."""
    return PendingLogprobs(logits, rows.group(_has_model_logprobs, "logprobs"))


def _has_model_logprobs(params: SamplingParams) -> bool:
    return params.logprobs is not None and not params.sampled_logprobs


def draw_logprobs(logits: Tensor, rows: SamplingRows) -> PendingLogprobs:
    """The distribution sampled from: to be taken after all strategies.

    Overwrites the logits of greedy rows in which it was asked for, whose token is certain.
    """
    greedy = rows.group(_has_certain_draw, "logprobs")
    if greedy:
        part = greedy.take(logits)
        certain = part.argmax(1, keepdim=True)
        greedy.put(logits, torch.full_like(part, BANNED).scatter_(1, certain, 0))
    return PendingLogprobs(logits, rows.group(_has_sampled_logprobs, "logprobs"))


def _has_sampled_logprobs(params: SamplingParams) -> bool:
    return params.logprobs is not None and params.sampled_logprobs


def _has_certain_draw(params: SamplingParams) -> bool:
    return _has_sampled_logprobs(params) and params.temperature == 0


def score_tokens(logits: Tensor, token_ids: Tensor, n_top: int) -> Iterator[TokenLogprob]:
    """Log-probabilities of given tokens [n] and of the `n_top` most likely ones, row by row of
    logits [n, vocab]."""
    for start in range(0, len(token_ids), SCORED_AT_ONCE):
        ids = token_ids[start : start + SCORED_AT_ONCE]
        logprobs = logits[start : start + SCORED_AT_ONCE].float().log_softmax(1)
        top = logprobs.topk(min(n_top, logprobs.shape[1]), dim=1)
        columns = (ids, logprobs.gather(1, ids[:, None])[:, 0], top.indices, top.values)
        for token_id, logprob, top_ids, values in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield TokenLogprob(token_id, logprob, tuple(zip(top_ids, values, strict=True)))
