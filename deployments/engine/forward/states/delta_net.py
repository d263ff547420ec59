"""A gated delta net of Qwen's on a CPU: its products, and one kernel for all that is between them.

For steps of few tokens in each row. Others are computed by transformers' module, on the same
states.
"""

import torch
from torch import Tensor

from deployments.engine.forward.module import Module
from deployments.engine.forward.state_pool import StatePool
from deployments.engine.kernels.cpu.features import has_matmul_kernels, is_cpu_bf16
from deployments.engine.kernels.cpu.states.delta_ops import (
    DeltaInputs,
    DeltaWeights,
    TokenSlots,
    delta_rule,
)

SEPARATE = {"Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet"}  # by what is made of a token
BY_HEAD = {"Qwen3NextGatedDeltaNet"}  # all that is made of it for a head of keys, side by side


class DeltaNet:
    """One module's, whose weights it has."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._is_by_head = type(module).__name__ in BY_HEAD
        self._k_heads, self._v_heads = module.num_k_heads, module.num_v_heads
        self._k_dim, self._v_dim = module.head_k_dim, module.head_v_dim
        self._weights = DeltaWeights(
            conv=module.conv1d.weight.detach().squeeze(1).contiguous(),
            decay=-module.A_log.detach().float().exp(),
            dt_bias=module.dt_bias.detach().float(),
            norm=module.norm.weight.detach(),
            epsilon=module.norm.variance_epsilon,
        )

    def __call__(self, x: Tensor, tokens: TokenSlots, pool: StatePool) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]. The states are those in the pool's slots."""
        layer, conv = self._module.layer_idx, self._weights.conv
        state = self._v_heads, self._k_dim, self._v_dim
        out = delta_rule(
            self._separate(x) if not self._is_by_head else self._by_head(x),
            self._weights,
            tokens,
            pool.memory(("conv", layer, 0), conv.shape, conv.dtype),
            pool.memory(("recurrent", layer, 0), state, torch.float32),
        )
        mixed: Tensor = self._module.out_proj(out)
        return mixed

    def _separate(self, x: Tensor) -> DeltaInputs:
        module, width = self._module, self._k_heads * self._k_dim
        qkv = module.in_proj_qkv(x)
        parts = qkv[:, :width], qkv[:, width : 2 * width], qkv[:, 2 * width :]
        others = module.in_proj_z(x), module.in_proj_b(x), module.in_proj_a(x)
        by_head = (part.view(len(x), self._k_heads, -1) for part in (*parts, *others))
        return DeltaInputs(*by_head)

    def _by_head(self, x: Tensor) -> DeltaInputs:
        qkvz = self._module.in_proj_qkvz(x).view(len(x), self._k_heads, -1)
        ba = self._module.in_proj_ba(x).view(len(x), self._k_heads, -1)
        group = self._v_heads // self._k_heads
        widths = [self._k_dim, self._k_dim, group * self._v_dim, group * self._v_dim]
        q, k, v, z = qkvz.split(widths, 2)
        return DeltaInputs(q, k, v, z, *ba.split([group, group], 2))


def delta_net(module: Module) -> DeltaNet | None:
    """None: the kernel does not compute what this mixer does, or not on its device."""
    if type(module).__name__ not in SEPARATE | BY_HEAD or not has_matmul_kernels():
        return None
    is_usual = module.conv1d.bias is None and module.activation == "silu"
    return DeltaNet(module) if is_usual and is_cpu_bf16(module.conv1d.weight) else None
