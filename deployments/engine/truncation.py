"""Truncation: strategies that leave the likely tokens as they are and let no other be drawn."""

import torch
from torch import Tensor

from deployments.engine.chance import XTC
from deployments.engine.strategy import NEVER, SamplingRows, SamplingStrategy
from deployments.wire import SamplingParams


class TopKStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        vocab = logits.shape[1]
        wanting = rows.truncated(lambda p: 0 < p.top_k < vocab, "top_k")
        if wanting:
            n_kept = [
                min(max(rows.params[row].top_k, rows.params[row].min_keep), vocab)
                for row in wanting
            ]
            part, place = logits[wanting], torch.tensor(n_kept, device=logits.device)[:, None] - 1
            least = part.topk(max(n_kept), dim=1).values.gather(1, place)
            logits[wanting] = part.masked_fill(part < least, NEVER)


class TopPStrategy(SamplingStrategy):
    """The smallest set of most likely tokens whose probabilities reach `top_p`."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.truncated(lambda p: p.top_p < 1, "top_p")
        if wanting:
            ordered, order = logits[wanting].sort(dim=1, descending=True, stable=True)
            probs = ordered.softmax(1)
            before = probs.cumsum(1) - probs
            beyond = before >= rows.column(wanting, lambda p: p.top_p)
            beyond[:, 0] = False
            for i, row in enumerate(wanting):
                if rows.params[row].min_keep > 1:
                    beyond[i, : _kept(rows.params[row], ordered[i])] = False
            kept = ordered.masked_fill(beyond, NEVER)
            logits[wanting] = torch.empty_like(kept).scatter_(1, order, kept)


class MinPStrategy(SamplingStrategy):
    """No token less likely than `min_p` times the most likely one."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.truncated(lambda p: p.min_p > 0, "min_p")
        if wanting:
            part = logits[wanting]
            least = part.amax(1, keepdim=True) + rows.column(wanting, lambda p: p.min_p).log()
            for i, row in enumerate(wanting):
                if rows.params[row].min_keep > 1:
                    least[i] = _lowered(least[i], part[i], rows.params[row])
            logits[wanting] = part.masked_fill(part < least, NEVER)


# The rest is asked for by few: row by row, in float64, so that a sum over the vocabulary is the
# same alone and in a batch.


class TopNSigmaStrategy(SamplingStrategy):
    """No token whose logit is `top_n_sigma` standard deviations below the highest one
    (Tang et al. 2024)."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.truncated(lambda p: p.top_n_sigma > 0, "top_n_sigma"):
            part, params = logits[row], rows.params[row]
            least = part.amax() - params.top_n_sigma * _deviation(part)
            part.masked_fill_(part < _lowered(least, part, params), NEVER)


def _deviation(logits: Tensor) -> Tensor:
    """Standard deviation of what is left of some logits."""
    left = logits.isfinite()
    n = left.sum()
    mean = logits.double().masked_fill(~left, 0).sum() / n
    return ((logits.double() - mean).masked_fill(~left, 0).square().sum() / n).sqrt()


class TypicalStrategy(SamplingStrategy):
    """The smallest set of tokens whose surprise is nearest to the entropy and whose probabilities
    reach `typical_p` (Meister et al. 2022)."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.truncated(lambda p: p.typical_p < 1, "typical_p"):
            part, params = logits[row], rows.params[row]
            surprise = -part.double().log_softmax(0)
            probs = (-surprise).exp()
            order = (surprise - torch.special.entr(probs).sum()).abs().argsort(stable=True)
            before = probs[order].cumsum(0) - probs[order]
            beyond = before >= params.typical_p
            beyond[: _kept(params, part)] = False
            part[order] = part[order].masked_fill(beyond, NEVER)


class XtcStrategy(SamplingStrategy):
    """Exclude Top Choices: with some probability, of the tokens that reach a threshold only the
    least likely one stays (Weidmann 2024)."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.truncated(
            lambda p: p.xtc_probability > 0 and p.xtc_threshold <= 0.5, "xtc_probability"
        )
        for row, chance in zip(wanting, rows.uniform(wanting, XTC).tolist(), strict=True):
            if chance < rows.params[row].xtc_probability:
                _exclude_top_choices(logits[row], rows.params[row])


def _exclude_top_choices(logits: Tensor, params: SamplingParams) -> None:
    ordered, order = logits.sort(descending=True, stable=True)
    left = ordered.isfinite()
    top = left & (ordered.double().softmax(0) >= params.xtc_threshold)
    n_excluded = top.sum() - 1
    excluded = torch.arange(len(logits), device=logits.device) < n_excluded
    excluded &= left.sum() - n_excluded >= _kept(params, logits)
    logits[order] = ordered.masked_fill(excluded, NEVER)


def _lowered(least: Tensor, logits: Tensor, params: SamplingParams) -> Tensor:
    """The least logit to be kept, no higher than that of the last of `min_keep` tokens."""
    keep = _kept(params, logits)
    return torch.minimum(least, logits.topk(keep).values[-1]) if keep > 1 else least


def _kept(params: SamplingParams, logits: Tensor) -> int:
    """So many tokens stay, whatever a strategy says."""
    return min(max(params.min_keep, 1), len(logits))
