"""The experts of tokens and their weights, for bfloat16 tensors on a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import BARRIER, address_of, empty
from deployments.engine.kernels.cpu.experts.router_kernels import router_kernel
from deployments.engine.kernels.cpu.matmul_ops import rows_per_task
from deployments.engine.kernels.cpu.packed_weight import pack
from deployments.engine.kernels.cpu.simd import PACK
from deployments.engine.kernels.experts import Routing


class RouterWeights:
    """The weights of a router, packed."""

    def __init__(self, weight: Tensor, bias: Tensor | None, correction: Tensor | None) -> None:
        """weight: bfloat16 or float32 [experts, in].

        bias: [experts], of the logits. correction: [experts], of scores, for the choice alone.
        """
        self.n_experts, self.n_inputs = weight.shape
        self.is_wide = weight.dtype is torch.float32
        self.packed = _packed_wide(weight) if self.is_wide else pack(weight).weights
        self.bias = None if bias is None else bias.float().contiguous()
        self.correction = None if correction is None else correction.float().contiguous()


def route(x: Tensor, router: RouterWeights, routing: Routing) -> tuple[Tensor, Tensor]:
    """Returns the experts of x [tokens, in], int64 [tokens, k], and their weights [tokens, k]."""
    x = x.contiguous()
    n, k = len(x), routing.k
    chosen, weights = empty((n, k), torch.int64), empty((n, k), routing.dtype)
    logits = empty((n, router.n_experts), torch.float32)
    if not n:
        return chosen, weights
    router_kernel().call(
        x.numel() * router.n_experts,
        x=x.data_ptr(),
        weight=router.packed.data_ptr(),
        is_wide=router.is_wide,
        rounds=routing.rounds,
        bias=address_of(router.bias),
        correction=address_of(router.correction),
        logits=logits.data_ptr(),
        chosen=chosen.data_ptr(),
        weights=weights.data_ptr(),
        has_wide_weights=routing.dtype is torch.float32,
        n_tokens=n,
        n_inputs=router.n_inputs,
        n_experts=router.n_experts,
        k=k,
        rows_per_task=rows_per_task(n, router.n_inputs),
        barrier=BARRIER,
        score=routing.score,
        n_groups=routing.n_groups,
        n_chosen_groups=routing.n_chosen_groups,
        best_of_group=routing.best_of_group,
        is_normed=routing.is_normed,
        epsilon=routing.epsilon,
        factor=routing.factor,
    )
    return chosen, weights


def _packed_wide(weight: Tensor) -> Tensor:
    """float32 [experts / PACK, in, PACK], filled up with zeros."""
    filled = F.pad(weight, (0, weight.shape[1] % 2, 0, -len(weight) % PACK))
    return filled.view(-1, PACK, filled.shape[1]).transpose(1, 2).contiguous()
