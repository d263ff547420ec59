"""Routers of experts. Whether our kernels know the rule of one is found out by trying it."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.kernels.cpu.experts import router_ops
from deployments.engine.kernels.cpu.experts.router_kernels import router_kernel
from deployments.engine.kernels.cpu.experts.router_ops import RouterWeights
from deployments.engine.kernels.cpu.features import has_matmul_kernels, is_cpu_bf16
from deployments.engine.kernels.experts import SIGMOID, SOFTMAX, Routing

N_TRIED, MAGNITUDES = 64, (-2.0, 0.5)  # tokens, and powers of 10 that their numbers have
MAX_DIFFERENCE = {
    torch.bfloat16: 2**-7,
    torch.float16: 2**-10,
    torch.float32: 1e-5,
}  # relative, of weights
CPU_DTYPES = torch.bfloat16, torch.float32  # of routers' weights for our kernel on a CPU
NO_WEIGHT = 1e-12  # so small that it does not count
EPSILON = 1e-20  # which some add to the sum of weights
# What routers have, by its names.
CORRECTION = "e_score_correction_bias"
CORRECTIONS = (CORRECTION, f"moe_statics.{CORRECTION}")
OWN = frozenset({"weight", "bias", *CORRECTIONS})
GROUPS, CHOSEN_GROUPS = "num_group", "topk_group"
FACTORS = ("routed_scaling_factor", "router_scaling_factor")


# x [tokens, hidden] -> the experts of each token and their weights, [tokens, k]
Route = Callable[[Tensor], tuple[Tensor, Tensor]]


class ExpertRouter:
    """The router of a layer's experts, by our kernels where these know the rule."""

    def __init__(self, router: nn.Module, *beside: Tensor) -> None:
        """`router` is one of transformers' that takes x [tokens, hidden], and the correction of its
        scores [experts] if that lies `beside` it."""
        self._router, self._beside = router, beside
        self._known: Route | None = None
        if (routing := known_routing(router, *beside)) is not None:
            weight, *others = _weights(router, *beside)
            assert weight is not None
            make = _on_cpu if weight.device.type == "cpu" else _on_gpu
            self._known = make(routing, weight, *others)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [tokens, hidden] -> the experts of each token and their weights, [tokens, k]"""
        if self._known is not None and (x.is_cuda or is_cpu_bf16(x)):
            return self._known(x)
        _, weights, index = self._router(x, *self._beside)
        return index, weights


def _on_cpu(routing: Routing, *weights: Any) -> Route:
    router_kernel()  # compiled before a step is recorded
    packed = RouterWeights(*weights)
    return lambda x: router_ops.route(x, packed, routing)


def _on_gpu(
    routing: Routing, weight: Tensor, bias: Tensor | None, correction: Tensor | None
) -> Route:
    from deployments.engine.kernels.gpu.experts.router_ops import DeviceRouter, route

    dtype = weight.dtype if routing.rounds else torch.float32
    own = None if bias is None else bias.to(dtype)
    router = DeviceRouter(weight.to(dtype), own, correction)
    return lambda x: route(x, router, routing)


def known_routing(router: nn.Module, *beside: Tensor) -> Routing | None:
    """The rule by which a router chooses. None: our kernels do not know it."""
    weight, *_ = _weights(router, *beside)
    if type(weight) is not Tensor or weight.dtype not in MAX_DIFFERENCE or not _has_usual(router):
        return None
    if weight.device.type == "cpu":
        types = [torch.bfloat16] if has_matmul_kernels() and weight.dtype in CPU_DTYPES else []
    elif weight.device.type == "cuda":
        router, types = deepcopy(router).cpu(), [*dict.fromkeys((weight.dtype, torch.bfloat16))]
    else:
        types = []
    found = (_rule_for(router, dtype, *(each.cpu() for each in beside)) for dtype in types)
    return next((routing for routing in found if routing is not None), None)


def _rule_for(router: Any, dtype: torch.dtype, *beside: Tensor) -> Routing | None:
    """Tries a router that is on a CPU with numbers of a type."""
    weight, bias, correction = _weights(router, *beside)
    assert weight is not None
    random = torch.Generator().manual_seed(0)
    x = torch.randn(N_TRIED, weight.shape[-1], generator=random)
    # Of large numbers the scores may all be 0 or 1, whatever the rule.
    x = (x * torch.logspace(*MAGNITUDES, N_TRIED)[:, None]).to(dtype)
    try:
        _, weights, index = router(x, *beside)
    except (RuntimeError, TypeError, ValueError):  # it takes or gives something else
        return None
    k = getattr(router, "top_k", None)
    for routing in _known(router, weights.dtype, k) if isinstance(k, int) else ():
        kind = dtype if routing.rounds else torch.float32
        logits = F.linear(x.to(kind), weight.to(kind), None if bias is None else bias.to(kind))
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
    if routing.has_groups:
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
