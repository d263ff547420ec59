"""Truncation: strategies that leave the likely tokens as they are and let no other be drawn."""

import torch
from torch import Tensor

from deployments.engine.rng import XTC
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import NEVER, SamplingStrategy, truncates
from deployments.wire import SamplingParams

LIKELIEST = 256  # tokens that hold most of the probability, as a rule: then no row is sorted


class TopKStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        asking = rows.asking(_asks_for_top_k, "top_k")
        if asking:
            part, vocab = asking.take(logits), logits.shape[1]
            n_kept = torch.maximum(asking.column("top_k"), asking.column("min_keep"))
            place = n_kept.clamp(max=vocab).long() - 1
            widest = min(max(max(p.top_k, p.min_keep) for p in asking.params), vocab)
            least = part.topk(widest, dim=1).values.gather(1, place)
            asking.put(logits, part.masked_fill_(part < least, NEVER))


def _asks_for_top_k(params: SamplingParams) -> bool:
    return params.top_k > 0 and truncates(params)


class TopPStrategy(SamplingStrategy):
    """The smallest set of most likely tokens whose probabilities reach `top_p`."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        asking = rows.asking(_asks_for_top_p, "top_p")
        if asking:
            min_keep = asking.column("min_keep").clamp(min=1)
            part = _nucleus(asking.take(logits), asking.column("top_p"), min_keep, LIKELIEST)
            asking.put(logits, part)


def _asks_for_top_p(params: SamplingParams) -> bool:
    return params.top_p < 1 and truncates(params)


def _nucleus(logits: Tensor, top_p: Tensor, min_keep: Tensor, reach: int) -> Tensor:
    """Rows without what top-p bans: by their `reach` likeliest tokens where these suffice.

    How a row is cut follows from the row alone. `top_p` and `min_keep` are [rows, 1].
    """
    if logits.is_cuda:
        from deployments.engine.kernels.gpu.top_p_ops import top_p_

        part = logits.contiguous()
        top_p_(part, top_p, min_keep)
        return part
    if 4 * reach > logits.shape[1]:  # sorting is cheap there
        return _sorted_nucleus(logits, top_p, min_keep)
    total = logits.logsumexp(1, keepdim=True)
    ordered = logits.topk(reach, dim=1).values
    probs = (ordered - total).exp()
    reached = probs.cumsum(1)
    easy = (reached[:, -1:] >= top_p) & (min_keep <= reach)
    n_kept = torch.maximum((reached - probs < top_p).sum(1, keepdim=True), min_keep.long())
    least = ordered.gather(1, n_kept.clamp(max=reach) - 1).masked_fill_(~easy, NEVER)
    logits.masked_fill_(logits < least, NEVER)
    _keep_first_ties(logits, least, n_kept - (ordered > least).sum(1, keepdim=True))
    hard = (~easy[:, 0]).nonzero()[:, 0]
    if len(hard):
        logits[hard] = _nucleus(logits[hard], top_p[hard], min_keep[hard], 8 * reach)
    return logits


def _keep_first_ties(logits: Tensor, least: Tensor, n_kept: Tensor) -> None:
    """Of the tokens that have a row's least logit, if it is one, the first `n_kept` stay."""
    row, place = ((logits == least) & least.isfinite()).nonzero(as_tuple=True)
    first = torch.searchsorted(row, torch.arange(len(logits)))
    beyond = torch.arange(len(row)) - first[row] >= n_kept[row, 0]
    logits[row[beyond], place[beyond]] = NEVER


def _sorted_nucleus(logits: Tensor, top_p: Tensor, min_keep: Tensor) -> Tensor:
    ordered, order = logits.sort(dim=1, descending=True, stable=True)
    probs = ordered.softmax(1)
    beyond = probs.cumsum(1) - probs >= top_p
    beyond &= torch.arange(logits.shape[1], device=logits.device) >= min_keep
    kept = ordered.masked_fill_(beyond, NEVER)
    return torch.empty_like(kept).scatter_(1, order, kept)


class MinPStrategy(SamplingStrategy):
    """No token less likely than `min_p` times the most likely one."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        asking = rows.asking(_asks_for_min_p, "min_p")
        if asking:
            part = asking.take(logits)
            least = part.amax(1, keepdim=True) + asking.column("min_p").log()
            for i, params in enumerate(asking.params):
                if params.min_keep > 1:
                    least[i] = _lowered(least[i], part[i], params)
            asking.put(logits, part.masked_fill_(part < least, NEVER))


def _asks_for_min_p(params: SamplingParams) -> bool:
    return params.min_p > 0 and truncates(params)


# The rest is asked for by few: row by row, in float64, so that a sum over the vocabulary is the
# same alone and in a batch.


class TopNSigmaStrategy(SamplingStrategy):
    """No token whose logit is `top_n_sigma` standard deviations below the highest one
    (Tang et al. 2024)."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_asks_for_top_n_sigma, "top_n_sigma"):
            part, params = logits[row], rows.params[row]
            least = part.amax() - params.top_n_sigma * _deviation(part)
            part.masked_fill_(part < _lowered(least, part, params), NEVER)


def _asks_for_top_n_sigma(params: SamplingParams) -> bool:
    return params.top_n_sigma > 0 and truncates(params)


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
        for row in rows.where(_asks_for_typical_p, "typical_p"):
            part, params = logits[row], rows.params[row]
            surprise = -part.double().log_softmax(0)
            probs = (-surprise).exp()
            order = (surprise - torch.special.entr(probs).sum()).abs().argsort(stable=True)
            before = probs[order].cumsum(0) - probs[order]
            beyond = before >= params.typical_p
            beyond[: _kept(params, part)] = False
            part[order] = part[order].masked_fill(beyond, NEVER)


def _asks_for_typical_p(params: SamplingParams) -> bool:
    return params.typical_p < 1 and truncates(params)


class XtcStrategy(SamplingStrategy):
    """Exclude Top Choices: with some probability, of the tokens that reach a threshold only the
    least likely one stays (Weidmann 2024)."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        asking = rows.asking(_asks_for_xtc, "xtc_probability")
        chances = rows.uniform(asking, XTC).tolist() if asking else []
        for row, chance in zip(asking.rows, chances, strict=True):
            if chance < rows.params[row].xtc_probability:
                _exclude_top_choices(logits[row], rows.params[row])


def _asks_for_xtc(params: SamplingParams) -> bool:
    return params.xtc_probability > 0 and params.xtc_threshold <= 0.5 and truncates(params)


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
