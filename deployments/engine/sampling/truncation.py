"""Truncation: strategies that keep the likely tokens as they are and ban all others."""

import torch
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.rng import XTC_STREAM, uniform
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BANNED, BaseSamplingStrategy, has_truncation

FIRST_REACH = 256  # tokens that hold most of the probability, as a rule: then no row is sorted


class TopKStrategy(BaseSamplingStrategy):
    """Keeps the `top_k` most likely tokens, and all that are as likely as the last of them."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        group = rows.group(_has_top_k, "top_k")
        if group:
            part, vocab = group.take(logits), logits.shape[1]
            n_kept = torch.maximum(group.column("top_k"), group.column("min_keep"))
            index = n_kept.clamp(max=vocab).long() - 1
            widest = min(max(max(p.top_k, p.min_keep) for p in group.params), vocab)
            least = part.topk(widest, dim=1).values.gather(1, index)
            group.put(logits, part.masked_fill_(part < least, BANNED))


def _has_top_k(params: SamplingParams) -> bool:
    return params.top_k > 0 and has_truncation(params)


class TopPStrategy(BaseSamplingStrategy):
    """Keeps the smallest set of most likely tokens whose probabilities sum to `top_p`."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        group = rows.group(_has_top_p, "top_p")
        if group:
            min_keep = group.column("min_keep").clamp(min=1)
            part = _nucleus(group.take(logits), group.column("top_p"), min_keep, FIRST_REACH)
            group.put(logits, part)


def _has_top_p(params: SamplingParams) -> bool:
    return params.top_p < 1 and has_truncation(params)


def _nucleus(logits: Tensor, top_p: Tensor, min_keep: Tensor, reach: int) -> Tensor:
    """Bans what top-p bans in logits [rows, vocab]. Looks at the `reach` most likely tokens of a
    row first, and at more where these do not reach `top_p`.

    What is banned in a row depends on that row alone. `top_p` and `min_keep` are [rows, 1].
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
    least = ordered.gather(1, n_kept.clamp(max=reach) - 1).masked_fill_(~easy, BANNED)
    logits.masked_fill_(logits < least, BANNED)
    _keep_first_ties(logits, least, n_kept - (ordered > least).sum(1, keepdim=True))
    hard = (~easy[:, 0]).nonzero()[:, 0]
    if len(hard):
        logits[hard] = _nucleus(logits[hard], top_p[hard], min_keep[hard], 8 * reach)
    return logits


def _keep_first_ties(logits: Tensor, least: Tensor, n_kept: Tensor) -> None:
    """Keeps the first `n_kept` [rows, 1] of the tokens whose logit is `least` [rows, 1], where that
    is finite, and bans the others."""
    row, token_id = ((logits == least) & least.isfinite()).nonzero(as_tuple=True)
    first = torch.searchsorted(row, torch.arange(len(logits)))
    beyond = torch.arange(len(row)) - first[row] >= n_kept[row, 0]
    logits[row[beyond], token_id[beyond]] = BANNED


def _sorted_nucleus(logits: Tensor, top_p: Tensor, min_keep: Tensor) -> Tensor:
    ordered, order = logits.sort(dim=1, descending=True, stable=True)
    probs = ordered.softmax(1)
    beyond = probs.cumsum(1) - probs >= top_p
    beyond &= torch.arange(logits.shape[1], device=logits.device) >= min_keep
    kept = ordered.masked_fill_(beyond, BANNED)
    return torch.empty_like(kept).scatter_(1, order, kept)


class MinPStrategy(BaseSamplingStrategy):
    """Bans tokens less likely than `min_p` times the most likely one."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        group = rows.group(_has_min_p, "min_p")
        if group:
            part = group.take(logits)
            least = part.amax(1, keepdim=True) + group.column("min_p").log()
            for i, params in enumerate(group.params):
                if params.min_keep > 1:
                    least[i] = _lowered_threshold(least[i], part[i], params)
            group.put(logits, part.masked_fill_(part < least, BANNED))


def _has_min_p(params: SamplingParams) -> bool:
    return params.min_p > 0 and has_truncation(params)


# Few requests use the rest. It goes row by row in float64, so that a sum over the vocabulary is
# the same alone and in a batch.


class TopNSigmaStrategy(BaseSamplingStrategy):
    """Bans tokens whose logit is more than `top_n_sigma` standard deviations below the highest one
    (Tang et al. 2024)."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_has_top_n_sigma, "top_n_sigma"):
            part, params = logits[row], rows.params[row]
            least = part.amax() - params.top_n_sigma * _deviation(part)
            part.masked_fill_(part < _lowered_threshold(least, part, params), BANNED)


def _has_top_n_sigma(params: SamplingParams) -> bool:
    return params.top_n_sigma > 0 and has_truncation(params)


def _deviation(logits: Tensor) -> Tensor:
    """Standard deviation of the finite ones of some logits. [vocab] -> []"""
    left = logits.isfinite()
    n = left.sum()
    mean = logits.double().masked_fill(~left, 0).sum() / n
    return ((logits.double() - mean).masked_fill(~left, 0).square().sum() / n).sqrt()


class TypicalStrategy(BaseSamplingStrategy):
    """Keeps the smallest set of tokens whose surprise is nearest to the entropy and whose
    probabilities sum to `typical_p` (Meister et al. 2022)."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(_has_typical_p, "typical_p"):
            part, params = logits[row], rows.params[row]
            surprise = -part.double().log_softmax(0)
            probs = (-surprise).exp()
            order = (surprise - torch.special.entr(probs).sum()).abs().argsort(stable=True)
            before = probs[order].cumsum(0) - probs[order]
            beyond = before >= params.typical_p
            beyond[: _min_kept(params, part)] = False
            part[order] = part[order].masked_fill(beyond, BANNED)


def _has_typical_p(params: SamplingParams) -> bool:
    return params.typical_p < 1 and has_truncation(params)


class XtcStrategy(BaseSamplingStrategy):
    """Exclude Top Choices (Weidmann 2024): with `xtc_probability`, bans all tokens that reach
    `xtc_threshold` but the least likely of them."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        group = rows.group(_has_xtc, "xtc_probability")
        draws = uniform(rows.keys(group, XTC_STREAM)).tolist() if group else []
        for row, draw in zip(group.rows, draws, strict=True):
            if draw < rows.params[row].xtc_probability:
                _exclude_top_choices(logits[row], rows.params[row])


def _has_xtc(params: SamplingParams) -> bool:
    return params.xtc_probability > 0 and params.xtc_threshold <= 0.5 and has_truncation(params)


def _exclude_top_choices(logits: Tensor, params: SamplingParams) -> None:
    ordered, order = logits.sort(descending=True, stable=True)
    left = ordered.isfinite()
    top = left & (ordered.double().softmax(0) >= params.xtc_threshold)
    n_excluded = top.sum() - 1
    excluded = torch.arange(len(logits), device=logits.device) < n_excluded
    excluded &= left.sum() - n_excluded >= _min_kept(params, logits)
    logits[order] = ordered.masked_fill(excluded, BANNED)


def _lowered_threshold(least: Tensor, logits: Tensor, params: SamplingParams) -> Tensor:
    """The threshold `least`, lowered where fewer than `min_keep` tokens would reach it."""
    keep = _min_kept(params, logits)
    return torch.minimum(least, logits.topk(keep).values[-1]) if keep > 1 else least


def _min_kept(params: SamplingParams, logits: Tensor) -> int:
    """Tokens that every strategy leaves."""
    return min(max(params.min_keep, 1), len(logits))
