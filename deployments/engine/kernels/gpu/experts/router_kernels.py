"""Triton kernels of routers: which experts a token is sent to, and with which weights."""

import triton
import triton.language as tl

from deployments.engine.kernels.experts import SOFTMAX

_SOFTMAX = tl.constexpr(SOFTMAX)
_NONE = tl.constexpr(2**30)  # behind all numbers of experts


@triton.jit
def _best(ranks, number, is_free):
    """The number of the best one that is free, the lowest of equal ones."""
    best = tl.max(tl.where(is_free, ranks, float("-inf")), 0)
    return tl.min(tl.where(is_free & (ranks == best), number, _NONE), 0)


@triton.jit
def _barred(ranks, group, place, is_there, RULE: tl.constexpr):
    """Ranks [groups, experts of a group], of which those of all groups but the best are -inf."""
    is_free = is_there
    sums = tl.zeros((ranks.shape[0],), dtype=tl.float32)
    counted: tl.constexpr = RULE.best_of_group
    for _ in tl.static_range(counted):
        best = tl.max(tl.where(is_free, ranks, float("-inf")), 1)
        at = tl.min(tl.where(is_free & (ranks == best[:, None]), place, _NONE), 1)
        is_free = is_free & (place != at[:, None])
        sums += best
    is_left = group < RULE.n_groups
    chosen: tl.constexpr = RULE.n_chosen_groups
    for _ in tl.static_range(chosen):
        is_left = is_left & (group != _best(sums, group, is_left))
    return tl.where(is_left[:, None], float("-inf"), ranks)


@triton.jit
def choose(logits, correction, chosen, weights, token, RULE: tl.constexpr):
    """Stores the experts of a token with float32 logits [experts], and their weights.

    Experts lie in rows of one group each, padded to powers of two.
    """
    group, place = tl.arange(0, RULE.groups_padded), tl.arange(0, RULE.size_padded)[None, :]
    number = group[:, None] * RULE.size + place
    is_there = (place < RULE.size) & (group < RULE.n_groups)[:, None]
    at = logits + token * RULE.n_experts + number
    logit = tl.load(at, mask=is_there, other=float("-inf")).to(tl.float32)
    if RULE.score == _SOFTMAX:
        scores = tl.exp(logit - tl.max(logit))
        scores = scores / tl.sum(scores)
    else:
        scores = tl.sigmoid(logit)
    # The softmax of two logits may be equal where these are not. Sums are of scores alone.
    if RULE.has_correction:
        ranks = scores + tl.load(correction + number, mask=is_there, other=0.0).to(tl.float32)
    elif RULE.score == _SOFTMAX and not RULE.has_groups:
        ranks = logit
    else:
        ranks = scores
    if RULE.has_groups:
        ranks = _barred(ranks, group, place, is_there, RULE)
    size: tl.constexpr = RULE.groups_padded * RULE.size_padded
    ranks, scores = ranks.reshape(size), scores.reshape(size)
    number, is_free = number.reshape(size), is_there.reshape(size)
    nth = tl.arange(0, RULE.k_padded)
    experts = tl.full((RULE.k_padded,), _NONE, tl.int32)
    shares = tl.zeros((RULE.k_padded,), dtype=tl.float32)
    total = 0.0
    k: tl.constexpr = RULE.k
    for choice in tl.static_range(k):
        best = _best(ranks, number, is_free)
        is_free = is_free & (number != best)
        share = tl.sum(tl.where(number == best, scores, 0.0), 0)
        experts = tl.where(nth == choice, best, experts)
        shares = tl.where(nth == choice, share, shares)
        total += share
    if RULE.is_normed:
        shares = shares / (total + RULE.epsilon)
    shares *= RULE.factor
    own = token * RULE.k + nth
    tl.store(chosen + own, experts.to(tl.int64), mask=nth < RULE.k)
    tl.store(weights + own, shares.to(weights.dtype.element_ty), mask=nth < RULE.k)


@triton.jit
def choose_experts_kernel(logits, correction, chosen, weights, RULE: tl.constexpr):
    """One program for a token."""
    choose(logits, correction, chosen, weights, tl.program_id(0).to(tl.int64), RULE)
