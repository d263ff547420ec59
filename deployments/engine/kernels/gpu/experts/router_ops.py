"""Launches the kernels of routers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from deployments.engine.kernels.experts import Routing
from deployments.engine.kernels.gpu.experts.router_kernels import choose_experts_kernel

EXPERTS_OF_A_WARP = 256


@dataclass(frozen=True)
class Rule:
    """A `Routing` of so many experts, known to the compiler."""

    n_experts: int
    k: int
    score: int
    n_groups: int
    n_chosen_groups: int
    best_of_group: int
    is_normed: bool
    epsilon: float
    factor: float
    has_correction: bool

    @property
    def has_groups(self) -> bool:
        return self.n_groups > self.n_chosen_groups

    @property
    def size(self) -> int:
        """Experts of a group."""
        return self.n_experts // self.n_groups

    @property
    def size_padded(self) -> int:
        return int(triton.next_power_of_2(self.size))

    @property
    def groups_padded(self) -> int:
        return int(triton.next_power_of_2(self.n_groups))

    @property
    def k_padded(self) -> int:
        return int(triton.next_power_of_2(self.k))


@dataclass(frozen=True)
class DeviceRouter:
    """The weights of a router [experts, in], in the type that logits have.

    bias: [experts] of that type, of the logits. correction: [experts], of scores, for the choice
        alone.
    """

    weight: Tensor
    bias: Tensor | None
    correction: Tensor | None


def route(x: Tensor, router: DeviceRouter, routing: Routing) -> tuple[Tensor, Tensor]:
    """Returns the experts of x [tokens, in], int64 [tokens, k], and their weights [tokens, k]."""
    logits = F.linear(x.to(router.weight.dtype), router.weight, router.bias)
    return choose(logits, router.correction, routing)


def choose(logits: Tensor, correction: Tensor | None, routing: Routing) -> tuple[Tensor, Tensor]:
    """Chooses by logits [tokens, experts]."""
    (n, n_experts), k = logits.shape, routing.k
    chosen = torch.empty(n, k, dtype=torch.int64, device=logits.device)
    weights = torch.empty(n, k, dtype=routing.dtype, device=logits.device)
    groups = routing.n_groups if routing.has_groups else 1
    rule = Rule(
        n_experts, k, routing.score, groups, routing.n_chosen_groups,
        min(routing.best_of_group, n_experts // groups), routing.is_normed, routing.epsilon,
        routing.factor, correction is not None,
    )  # fmt: skip
    if n:
        choose_experts_kernel[(n,)](
            logits.contiguous(), logits if correction is None else correction, chosen, weights,
            RULE=rule, num_warps=max(1, triton.cdiv(n_experts, EXPERTS_OF_A_WARP)),
            enable_fp_fusion=False,
        )  # fmt: skip
    return chosen, weights
