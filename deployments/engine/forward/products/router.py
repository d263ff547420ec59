"""Routers of experts. Whether a CPU kernel knows the rule of one is found out by trying it."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.kernels.cpu.experts import router_ops
from deployments.engine.kernels.cpu.experts.router_kernels import (
    SIGMOID,
    SOFTMAX,
    router_kernel,
)
from deployments.engine.kernels.cpu.experts.router_ops import RouterWeights, Routing
from deployments.engine.kernels.cpu.features import has_matmul_kernels, is_cpu_bf16

N_TRIED, MAGNITUDES = 64, (-2.0, 0.5)  # tokens, and powers of 10 that their numbers have
MAX_DIFFERENCE = {torch.bfloat16: 2**-7, torch.float32: 1e-5}  # relative, of weights
NO_WEIGHT = 1e-12  # so small that it does not count
EPSILON = 1e-20  # which some add to the sum of weights
# What routers have, by its names.
CORRECTION = "e_score_correction_bias"
CORRECTIONS = (CORRECTION, f"moe_statics.{CORRECTION}")
OWN = frozenset({"weight", "bias", *CORRECTIONS})
GROUPS, CHOSEN_GROUPS = "num_group", "topk_group"
FACTORS = ("routed_scaling_factor", "router_scaling_factor")


class ExpertRouter:
    """The router of a layer's experts, in one kernel where it knows the rule."""

    def __init__(self, router: nn.Module, *beside: Tensor) -> None:
        """`router` is one of transformers' that takes x [tokens, hidden], and the correction of its
        scores [experts] if that lies `beside` it."""
        self._router, self._beside = router, beside
        self._routing = known_routing(router, *beside)
        self._weights: RouterWeights | None = None
        if self._routing is not None:
            router_kernel()  # compiled before a step is recorded
            weight, *others = _weights(router, *beside)
            assert weight is not None
            self._weights = RouterWeights(weight, *others)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [tokens, hidden] -> the experts of each token and their weights, [tokens, k]"""
        if self._weights is not None and self._routing is not None and is_cpu_bf16(x):
            return router_ops.route(x, self._weights, self._routing)
        _, weights, index = self._router(x, *self._beside)
        return index, weights


def known_routing(router: nn.Module, *beside: Tensor) -> Routing | None:
    """The rule by which a router chooses. None: our kernel does not know it."""
    weight, bias, correction = _weights(router, *beside)
    k = getattr(router, "top_k", None)
    if type(weight) is not Tensor or weight.device.type != "cpu" or not isinstance(k, int):
        return None
    if not has_matmul_kernels() or weight.dtype not in MAX_DIFFERENCE or not _has_usual(router):
        return None
    random = torch.Generator().manual_seed(0)
    x = torch.randn(N_TRIED, weight.shape[-1], generator=random)
    # Of large numbers the scores may all be 0 or 1, whatever the rule.
    x = (x * torch.logspace(*MAGNITUDES, N_TRIED)[:, None]).to(torch.bfloat16)
    try:
        _, weights, index = router(x, *beside)
    except (RuntimeError, TypeError, ValueError):  # it takes or gives something else
        return None
    for routing in _known(router, weights.dtype, k):
        dtype = torch.bfloat16 if routing.rounds else torch.float32
        logits = F.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
        if _is_same(choose(logits, correction, routing), (index, weights)):
            return routing
    return None


def _has_usual(router: nn.Module) -> bool:
    """Whether nothing is kept in it, or follows it, that our kernel would pass by."""
    kept = {name for name, _ in (*router.named_parameters(), *router.named_buffers())}
    return kept <= OWN and not router._forward_hooks and not router._forward_pre_hooks


def choose(logits: Tensor, correction: Tensor | None, routing: Routing) -> tuple[Tensor, Tensor]:
    """Chooses by logits [tokens, experts] as our kernel does: experts and their weights."""
    scores = logits.float()
    scores = scores.softmax(-1) if routing.score == SOFTMAX else scores.sigmoid()
    biased = scores if correction is None else scores + correction
    if routing.n_groups > routing.n_chosen_groups:
        of_groups = biased.view(len(biased), routing.n_groups, -1)
        best = of_groups.topk(min(routing.best_of_group, of_groups.shape[-1])).values.sum(-1)
        chosen = torch.zeros_like(best).scatter_(1, best.topk(routing.n_chosen_groups).indices, 1)
        biased = of_groups.masked_fill(chosen[..., None] == 0, -torch.inf).flatten(1)
    index = biased.topk(routing.k).indices
    weights = scores.gather(1, index)
    if routing.is_normed:
        weights = weights / (weights.sum(-1, keepdim=True) + routing.epsilon)
    return index, (weights * routing.factor).to(routing.dtype)


def _known(router: Any, dtype: torch.dtype, k: int) -> Iterator[Routing]:
    n_groups, n_chosen = getattr(router, GROUPS, None) or 1, getattr(router, CHOSEN_GROUPS, None)
    groups = [(1, 1, 1)]
    if n_groups > 1:
        groups = [(n_groups, n_chosen or n_groups, best) for best in (2, 1)] + groups
    factors = {1.0, *(float(getattr(router, name, None) or 1) for name in FACTORS)}
    rules = product((True, False), (SOFTMAX, SIGMOID), (True, False), groups, factors)
    for rounds, score, is_normed, of, factor in rules:
        yield Routing(k, score, rounds, dtype, *of, is_normed, EPSILON, factor)


def _is_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> bool:
    """Whether the same experts have the same weights, in whatever order."""
    (index, weights), (other_index, other_weights) = (
        _by_expert(*pair) for pair in (found, expected)
    )
    if not torch.equal(index, other_index):
        return False
    most = MAX_DIFFERENCE[found[1].dtype]
    return torch.allclose(weights, other_weights, rtol=most, atol=NO_WEIGHT)


def _by_expert(index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    index, order = index.sort(-1)
    return index, weights.gather(1, order).float()


def _weights(
    router: nn.Module, *beside: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Its weight [experts, in], the bias of its logits and the correction of its scores, both
    [experts]."""
    own = {name: kept.detach() for name, kept in router.named_parameters()}
    own |= {name: kept.detach() for name, kept in router.named_buffers()}
    corrections = [*beside, *(own[name] for name in CORRECTIONS if name in own)]
    correction = corrections[0].flatten() if corrections else None
    return own.get("weight"), own.get("bias"), correction
