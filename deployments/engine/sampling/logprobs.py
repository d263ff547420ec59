"""Log-probabilities of drawn tokens, and of tokens that are known already: those of a prompt."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from deployments.engine.sampling.rows import Asking, SamplingRows
from deployments.engine.sampling.strategy import NEVER
from deployments.wire import SamplingParams, TokenLogprob

SCORED_AT_ONCE = 64  # positions whose distributions are held at once


class Logprobs:
    """Of some rows' logits as they are now; to look up what is drawn later."""

    def __init__(self, logits: Tensor, asking: Asking) -> None:
        self._wanting = asking.rows
        self._n = [params.logprobs or 0 for params in asking.params]
        if asking:
            self._all = asking.take(logits).log_softmax(1)
            top = self._all.topk(min(max(self._n), logits.shape[1]), dim=1)
            self._values, self._ids = top.values.tolist(), top.indices.tolist()

    def of(self, drawn: Sequence[int | None]) -> dict[int, TokenLogprob]:
        """By row, where one is wanted and a token was drawn."""
        if not self._wanting:
            return {}
        found = [
            (i, token_id)
            for i, row in enumerate(self._wanting)
            if (token_id := drawn[row]) is not None
        ]
        if not found:
            return {}
        places, ids = zip(*found, strict=True)
        values = self._all[list(places), list(ids)].tolist()
        return {
            self._wanting[i]: TokenLogprob(token_id, value, self._alternatives(i))
            for (i, token_id), value in zip(found, values, strict=True)
        }

    def _alternatives(self, i: int) -> tuple[tuple[int, float], ...]:
        n = self._n[i]
        likeliest = zip(self._ids[i][:n], self._values[i][:n], strict=True)
        return tuple(entry for entry in likeliest if entry[1] > NEVER)


def of_the_model(logits: Tensor, rows: SamplingRows) -> Logprobs:
    """To be taken before any strategy has changed the logits."""
    return Logprobs(logits, rows.asking(_asks_of_the_model, "logprobs"))


def _asks_of_the_model(params: SamplingParams) -> bool:
    return params.logprobs is not None and not params.sampled_logprobs


def of_the_draw(logits: Tensor, rows: SamplingRows) -> Logprobs:
    """To be taken when all strategies have; overwrites greedy rows, whose draw is certain."""
    asking = rows.asking(_asks_of_the_draw, "logprobs")
    for row, params in zip(asking.rows, asking.params, strict=True):
        if params.temperature == 0:
            certain = logits[row].argmax()
            logits[row] = NEVER
            logits[row, certain] = 0
    return Logprobs(logits, asking)


def _asks_of_the_draw(params: SamplingParams) -> bool:
    return params.logprobs is not None and params.sampled_logprobs


def score(logits: Tensor, token_ids: Tensor, n_top: int) -> Iterator[TokenLogprob]:
    """For each row of logits [n, vocab] what the token [n] had, and the `n_top` likeliest ones."""
    for start in range(0, len(token_ids), SCORED_AT_ONCE):
        ids = token_ids[start : start + SCORED_AT_ONCE]
        logprobs = logits[start : start + SCORED_AT_ONCE].float().log_softmax(1)
        top = logprobs.topk(min(n_top, logprobs.shape[1]), dim=1)
        columns = (ids, logprobs.gather(1, ids[:, None])[:, 0], top.indices, top.values)
        for token_id, logprob, top_ids, values in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield TokenLogprob(token_id, logprob, tuple(zip(top_ids, values, strict=True)))
