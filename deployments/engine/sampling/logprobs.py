"""Log-probabilities of drawn tokens, and of tokens that are known already: those of a prompt."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from deployments.engine.sampling.rows import ParamGroup, SamplingRows
from deployments.engine.sampling.strategy import BANNED
from deployments.wire import SamplingParams, TokenLogprob

SCORED_AT_ONCE = 64  # positions whose distributions are held at once


class Logprobs:
    """Log-probabilities of a group's logits as they are now, to look up tokens sampled later."""

    def __init__(self, logits: Tensor, group: ParamGroup) -> None:
        self._rows = group.rows
        self._n = [params.logprobs or 0 for params in group.params]
        if group:
            self._all = group.take(logits).log_softmax(1)
            top = self._all.topk(min(max(self._n), logits.shape[1]), dim=1)
            self._values, self._ids = top.values.tolist(), top.indices.tolist()

    def lookup(self, sampled: Sequence[int | None]) -> dict[int, TokenLogprob]:
        """By row number: of rows of the group for which a token was sampled. `sampled` [batch]"""
        if not self._rows:
            return {}
        found = [
            (i, token_id)
            for i, row in enumerate(self._rows)
            if (token_id := sampled[row]) is not None
        ]
        if not found:
            return {}
        indices, ids = zip(*found, strict=True)
        values = self._all[list(indices), list(ids)].tolist()
        return {
            self._rows[i]: TokenLogprob(token_id, value, self._alternatives(i))
            for (i, token_id), value in zip(found, values, strict=True)
        }

    def _alternatives(self, i: int) -> tuple[tuple[int, float], ...]:
        n = self._n[i]
        top = zip(self._ids[i][:n], self._values[i][:n], strict=True)
        return tuple(entry for entry in top if entry[1] > BANNED)


def model_logprobs(logits: Tensor, rows: SamplingRows) -> Logprobs:
    """The model's own distribution: to be taken before any strategy changes the logits."""
    return Logprobs(logits, rows.group(_has_model_logprobs, "logprobs"))


def _has_model_logprobs(params: SamplingParams) -> bool:
    return params.logprobs is not None and not params.sampled_logprobs


def draw_logprobs(logits: Tensor, rows: SamplingRows) -> Logprobs:
    """The distribution sampled from: to be taken after all strategies.

    Overwrites the logits of greedy rows in which it was asked for, whose token is certain.
    """
    group = rows.group(_has_sampled_logprobs, "logprobs")
    for row, params in zip(group.rows, group.params, strict=True):
        if params.temperature == 0:
            certain = logits[row].argmax()
            logits[row] = BANNED
            logits[row, certain] = 0
    return Logprobs(logits, group)


def _has_sampled_logprobs(params: SamplingParams) -> bool:
    return params.logprobs is not None and params.sampled_logprobs


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
