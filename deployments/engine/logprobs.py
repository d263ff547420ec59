"""Reports logprobs of drawn tokens, for the rows that ask, beside the likeliest alternatives."""

from collections.abc import Callable, Sequence

from torch import Tensor

from deployments.engine.strategy import NEVER, SamplingRows
from deployments.wire import SamplingParams, TokenLogprob


class Logprobs:
    """Of some rows' logits as they are now; to look up what is drawn later."""

    def __init__(self, logits: Tensor, rows: SamplingRows, wanting: Sequence[int]) -> None:
        self._wanting = wanting
        self._n = [rows.params[row].logprobs or 0 for row in wanting]
        if wanting:
            self._all = logits[wanting].log_softmax(1)
            top = self._all.topk(min(max(self._n), logits.shape[1]), dim=1)
            self._values, self._ids = top.values.tolist(), top.indices.tolist()

    def of(self, drawn: Sequence[int | None]) -> dict[int, TokenLogprob]:
        """By row, where one is wanted and a token was drawn."""
        ids = enumerate(drawn[row] for row in self._wanting)
        entries = ((self._wanting[i], i, token_id) for i, token_id in ids if token_id is not None)
        return {row: self._entry(i, token_id) for row, i, token_id in entries}

    def _entry(self, i: int, token_id: int) -> TokenLogprob:
        n = self._n[i]
        likeliest = zip(self._ids[i][:n], self._values[i][:n], strict=True)
        alternatives = tuple(entry for entry in likeliest if entry[1] > NEVER)
        return TokenLogprob(token_id, float(self._all[i, token_id]), alternatives)


def of_the_model(logits: Tensor, rows: SamplingRows) -> Logprobs:
    """To be taken before any strategy has changed the logits."""
    return Logprobs(logits, rows, _wanting(rows, lambda p: not p.sampled_logprobs))


def of_the_draw(logits: Tensor, rows: SamplingRows) -> Logprobs:
    """To be taken when all strategies have; overwrites greedy rows, whose draw is certain."""
    wanting = _wanting(rows, lambda p: p.sampled_logprobs)
    for row in wanting:
        if rows.params[row].temperature == 0:
            certain = logits[row].argmax()
            logits[row] = NEVER
            logits[row, certain] = 0
    return Logprobs(logits, rows, wanting)


def _wanting(rows: SamplingRows, kind: Callable[[SamplingParams], bool]) -> list[int]:
    return rows.where(lambda p: p.logprobs is not None and kind(p), "logprobs")
