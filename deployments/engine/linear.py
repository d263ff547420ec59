"""Linear layers whose weights lie in memory as the processor's matrix kernels want to read them.

Without this, oneDNN puts a bfloat16 weight in order at every call: at few rows a step was measured
to take 1.5 to 2 times as long (tests/bench/RESULTS.md). What follows a product is computed with it.
"""

import ctypes
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine import kernels
from deployments.engine.kernels import ADD, FEW_ROWS, MUL, NONE, PACK, SWISH

# What the inductor compiler packs weights with; it has no other public name.
PACKING = ("_reorder_linear_weight", "_linear_pointwise")
LOOKING = ("data_ptr", "_nbytes")  # what it reads packed weights with
FITTING_ROWS = 32  # the layout is the same for all numbers of rows, and chosen for this one
FOLLOWING = {"none": NONE, "swish": SWISH, "add": ADD, "mul": MUL}


class PackedLinear(nn.Module):
    """Computes what the `nn.Linear` that it is made of does, on bfloat16 on a CPU."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, FITTING_ROWS)
        self.bias = None if linear.bias is None else linear.bias.detach()
        self._most = FEW_ROWS * self.in_features
        self._address = _address(weight, self.weight)

    def forward(self, x: Tensor, then: str = "none") -> Tensor:
        if self._address is not None and x.numel() <= self._most:
            following = FOLLOWING[then]
            return kernels.product(x, self._address, self.out_features, self.bias, following)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, then, [], "")
        return out

    def with_other(self, x: Tensor, other: Tensor, then: str) -> Tensor:
        if self._address is not None and x.numel() <= self._most:
            following = FOLLOWING[then], other
            return kernels.product(x, self._address, self.out_features, self.bias, *following)
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self.weight, self.bias, then
        )
        return out


def _address(weight: Tensor, packed: Tensor) -> int | None:
    """Where the packed weight lies, if it lies there as `kernels.product` reads it.

    oneDNN promises no layout, so the first and the last whole block are looked at.
    """
    n_blocks, width = weight.shape[0] // PACK, weight.shape[1]
    if n_blocks == 0 or width % 2 or not all(hasattr(torch.ops.mkldnn, name) for name in LOOKING):
        return None
    if torch.ops.mkldnn._nbytes(packed) != -(-weight.shape[0] // PACK) * PACK * width * 2:
        return None
    address: int = torch.ops.mkldnn.data_ptr(packed)
    for block in (0, n_blocks - 1):
        place = (ctypes.c_int16 * (PACK * width)).from_address(address + block * PACK * width * 2)
        found = torch.frombuffer(place, dtype=torch.int16).view(width // 2, PACK, 2)
        expected = weight[block * PACK : (block + 1) * PACK].view(torch.int16)
        if not torch.equal(found.transpose(0, 1), expected.view(PACK, width // 2, 2)):
            return None
    return address


def plus(linear: nn.Module, x: Tensor, other: Tensor) -> Tensor:
    """`linear(x) + other`, which may be the same memory as `other` afterwards."""
    if isinstance(linear, PackedLinear):
        return linear.with_other(x, other, "add")
    return other.add_(linear(x))


def gated(gate: nn.Module, up: nn.Module, x: Tensor) -> Tensor:
    """`silu(gate(x)) * up(x)`."""
    if isinstance(gate, PackedLinear) and isinstance(up, PackedLinear):
        return up.with_other(x, gate(x, "swish"), "mul")
    return F.silu(gate(x)).mul_(up(x))


def pack_linears(module: nn.Module) -> None:
    """Replaces the linear layers in a module that gain by it."""
    for name, child in module.named_children():
        if is_packable(child):
            setattr(module, name, PackedLinear(cast(nn.Linear, child)))
        else:
            pack_linears(child)


def is_packable(module: nn.Module) -> bool:
    # Others of its kind, quantized ones say, compute something else, and so may hooks.
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    kind = type(module.weight.data), module.weight.device.type, module.weight.dtype
    return kind == (Tensor, "cpu", torch.bfloat16) and _can_pack()


def _can_pack() -> bool:
    known = all(hasattr(torch.ops.mkldnn, name) for name in PACKING)
    return known and torch.cpu._is_avx512_bf16_supported()
