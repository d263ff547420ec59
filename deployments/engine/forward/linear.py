"""Linear layers whose weights lie in memory as the matrix kernels want to read them.

Without this, oneDNN puts a bfloat16 weight in order at every call: at few rows a step was measured
to take 1.5 to 2 times as long (tests/bench/RESULTS.md). What follows a product is computed with it.

Where the processor does not multiply bfloat16, kernels of ours multiply all, in float32.
"""

import ctypes
import sys
from abc import ABC, abstractmethod
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16, is_cpu_bf16
from deployments.engine.kernels.cpu.matmul_kernels import ADD, MUL, NONE, PACKS, SWISH, PackFormat
from deployments.engine.kernels.cpu.matmul_ops import FEW_ROWS, PackedPointer

LOOKING = ("data_ptr", "_nbytes")  # what it reads packed weights with
FITTING_ROWS = 32  # the layout is the same for all numbers of rows, and chosen for this one
ALL_ROWS = sys.maxsize
FOLLOWING = {"none": NONE, "swish": SWISH, "add": ADD, "mul": MUL}


class KernelLinear(nn.Module, ABC):
    """A linear layer, and what follows it, on bfloat16 on a CPU: of a few rows by a kernel of ours,
    which may be all that there are."""

    def __init__(
        self,
        sizes: tuple[int, int],
        bias: Tensor | None,
        packed: PackedPointer | None,
        most_rows: int,
    ) -> None:
        """`sizes` are inputs and outputs."""
        super().__init__()
        self.in_features, self.out_features = sizes
        self.bias = bias
        self._packed = packed
        self._most = most_rows * self.in_features

    @property
    def has_kernel(self) -> bool:
        """Whether a kernel of ours multiplies a few rows."""
        return self._packed is not None

    def forward(self, x: Tensor, then: str = "none") -> Tensor:
        if self._packed is not None and x.numel() <= self._most:
            following = FOLLOWING[then]
            return matmul_ops.matmul(x, self._packed, self.out_features, self.bias, following)
        return self._multiply(x, then)

    def with_other(self, x: Tensor, other: Tensor, then: str) -> Tensor:
        if self._packed is not None and x.numel() <= self._most:
            following = FOLLOWING[then], other
            return matmul_ops.matmul(x, self._packed, self.out_features, self.bias, *following)
        return self._multiply_with_other(x, other, then)

    @abstractmethod
    def _multiply(self, x: Tensor, then: str) -> Tensor:
        """Of many rows."""

    @abstractmethod
    def _multiply_with_other(self, x: Tensor, other: Tensor, then: str) -> Tensor: ...


class PackedLinear(KernelLinear):
    """Computes what the `nn.Linear` that it is made of does.

    `by_onednn` all but a few rows, which is fast where the processor has instructions for it.
    """

    def __init__(self, linear: nn.Linear, by_onednn: bool) -> None:
        weight = linear.weight.detach()
        if by_onednn:
            kept: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, FITTING_ROWS)
            packed, most_rows = _find(weight, kept), FEW_ROWS
        else:
            matrix = matmul_ops.pack(weight)
            kept, packed, most_rows = matrix.weights, matrix.place, ALL_ROWS
        bias = None if linear.bias is None else linear.bias.detach()
        super().__init__((linear.in_features, linear.out_features), bias, packed, most_rows)
        self.weight = kept

    def _multiply(self, x: Tensor, then: str) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, then, [], "")
        return out

    def _multiply_with_other(self, x: Tensor, other: Tensor, then: str) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self.weight, self.bias, then
        )
        return out


def _find(weight: Tensor, packed: Tensor) -> PackedPointer | None:
    """The packed weight, if it lies as `matmul_ops.matmul` reads it.

    oneDNN promises no layout, so the first and the last whole block are looked at.
    """
    if not all(hasattr(torch.ops.mkldnn, name) for name in LOOKING):
        return None
    address: int = torch.ops.mkldnn.data_ptr(packed)
    n_bytes: int = torch.ops.mkldnn._nbytes(packed)
    fitting = (
        PackedPointer(address, PackFormat(width))
        for width in PACKS
        if _lies(weight, address, n_bytes, width)
    )
    return next(fitting, None)


def _lies(weight: Tensor, address: int, n_bytes: int, pack: int) -> bool:
    out, width = weight.shape
    block_bytes = pack * width * 2
    if out < pack or width % 2 or n_bytes != -(-out // pack) * block_bytes:
        return False
    for block in (0, out // pack - 1):
        place = (ctypes.c_int16 * (pack * width)).from_address(address + block * block_bytes)
        found = torch.frombuffer(place, dtype=torch.int16).view(width // 2, pack, 2)
        expected = weight[block * pack : (block + 1) * pack].view(torch.int16)
        if not torch.equal(found.transpose(0, 1), expected.view(pack, width // 2, 2)):
            return False
    return True


def linear_add(linear: nn.Module, x: Tensor, other: Tensor) -> Tensor:
    """`linear(x) + other`, which may be the same memory as `other` afterwards."""
    if isinstance(linear, KernelLinear):
        return linear.with_other(x, other, "add")
    if x.is_cuda and _is_plain(linear) and linear.bias is None:
        return other.addmm_(x, linear.weight.t())  # added by the product itself
    return other.add_(linear(x))


def silu_mul(gate: nn.Module, up: nn.Module, x: Tensor) -> Tensor:
    """`silu(gate(x)) * up(x)`."""
    if isinstance(gate, KernelLinear) and isinstance(up, KernelLinear):
        return up.with_other(x, gate(x, "swish"), "mul")
    return F.silu(gate(x)).mul_(up(x))


def pack_linears(module: nn.Module) -> None:
    """Replaces the linear layers in a module that gain by it."""
    for name, child in module.named_children():
        if is_packable(child):
            setattr(module, name, PackedLinear(child, has_native_bf16()))
        else:
            pack_linears(child)


def is_packable(module: nn.Module) -> TypeGuard[nn.Linear]:
    if not _is_plain(module) or not is_cpu_bf16(module.weight):
        return False
    return has_native_bf16() or has_matmul_kernels()


def _is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    # Others of its kind, quantized ones say, compute something else, and so may hooks.
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    return type(module.weight.data) is Tensor
