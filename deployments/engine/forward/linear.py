"""Linear layers on a CPU whose weights are packed as the matrix kernels read them.

oneDNN packs a plain bfloat16 weight again at every call. A step with few rows was then measured to
take 1.5 to 2 times as long (tests/bench/RESULTS.md). What follows a product is computed in its
epilogue. On processors that do not multiply bfloat16, our kernels compute all products in float32.
"""

import ctypes
import sys
from abc import ABC, abstractmethod
from typing import TypeGuard

import torch
from torch import Tensor, nn

from deployments.engine.attention.latents import PROJECTION
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16, is_cpu_bf16
from deployments.engine.kernels.cpu.matmul_kernels import ADD, GELU, MUL, NONE, PACKS, SWISH
from deployments.engine.kernels.cpu.matmul_ops import (
    SMALL_MATRIX_NUMBERS,
    max_rows_beside_onednn,
)
from deployments.engine.kernels.cpu.pack_format import PackFormat
from deployments.engine.kernels.cpu.packed_weight import PackedPointer, pack

INSPECTION_OPS = ("data_ptr", "_nbytes")  # of torch.ops.mkldnn, to find a packed weight's memory
LAYOUT_ROWS = 32  # oneDNN packs for this number of rows, and accepts the layout for any other
ALL_ROWS = sys.maxsize
EPILOGUES = {"none": NONE, "swish": SWISH, "gelu_tanh": GELU, "add": ADD, "mul": MUL}
ACTIVATIONS = {GateActivation.SILU: "swish", GateActivation.GELU_TANH: "gelu_tanh"}  # of EPILOGUES


class KernelLinear(nn.Module, ABC):
    """A bfloat16 linear layer with an epilogue, on a CPU.

    Our kernel computes products of few rows, and in some layers all products.
    """

    def __init__(
        self,
        sizes: tuple[int, int],
        bias: Tensor | None,
        packed: PackedPointer | None,
        max_kernel_rows: int,
    ) -> None:
        """`sizes` are the numbers of inputs and outputs.

        Our kernel multiplies up to `max_kernel_rows` rows with the weight at `packed`. It
        multiplies none if `packed` is None.
        """
        super().__init__()
        self.in_features, self.out_features = sizes
        self.bias = bias
        self._packed = packed
        self._max_kernel_numel = max_kernel_rows * self.in_features

    @property
    def has_kernel(self) -> bool:
        """Whether our kernel computes products of few rows."""
        return self._packed is not None

    def forward(self, x: Tensor, epilogue: str = "none") -> Tensor:
        """[..., in] -> [..., out], through the epilogue "none" or one of ACTIVATIONS."""
        if self._packed is not None and x.numel() <= self._max_kernel_numel:
            code = EPILOGUES[epilogue]
            return matmul_ops.matmul(x, self._packed, self.out_features, self.bias, code)
        return self._multiply(x, epilogue)

    def forward_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        """[..., in] -> [..., out]. The epilogue "add" or "mul" takes `other` [..., out], too.

        The result may lie in the memory of `other`.
        """
        if self._packed is not None and x.numel() <= self._max_kernel_numel:
            code = EPILOGUES[epilogue]
            return matmul_ops.matmul(x, self._packed, self.out_features, self.bias, code, other)
        return self._multiply_binary(x, other, epilogue)

    @abstractmethod
    def _multiply(self, x: Tensor, epilogue: str) -> Tensor:
        """`forward` without our kernel."""

    @abstractmethod
    def _multiply_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        """`forward_binary` without our kernel."""


class PackedLinear(KernelLinear):
    """An `nn.Linear` with a packed weight.

    With `uses_onednn`, oneDNN computes all products but those of few rows. That is fast where the
    processor multiplies bfloat16.
    """

    def __init__(self, linear: nn.Linear, uses_onednn: bool) -> None:
        plain, packed = linear.weight.detach(), None
        if uses_onednn:
            weight, packed = pack_for_onednn(plain)
            max_kernel_rows = max_rows_beside_onednn(plain.numel())
        # A small matrix in another layout would keep a whole layer from being recorded.
        if packed is None and (not uses_onednn or plain.numel() <= SMALL_MATRIX_NUMBERS):
            matrix = pack(plain)
            weight, packed, max_kernel_rows = matrix.weights, matrix.pointer, ALL_ROWS
        bias = None if linear.bias is None else linear.bias.detach()
        super().__init__((linear.in_features, linear.out_features), bias, packed, max_kernel_rows)
        self.weight = weight

    def _multiply(self, x: Tensor, epilogue: str) -> Tensor:
        return onednn_product(x, self.weight, self.bias, epilogue)

    def _multiply_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self.weight, self.bias, epilogue
        )
        return out


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None, epilogue: str) -> Tensor:
    """oneDNN's product with a packed weight, through an epilogue of one operand."""
    name, algorithm = ("gelu", "tanh") if epilogue == "gelu_tanh" else (epilogue, "")
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, name, [], algorithm)
    return out


def pack_for_onednn(weight: Tensor) -> tuple[Tensor, PackedPointer | None]:
    """oneDNN's packed weight of [out, in], and where it lies if our kernels can read it there."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, LAYOUT_ROWS)
    return packed, _find_packed(weight, packed)


def _find_packed(weight: Tensor, packed: Tensor) -> PackedPointer | None:
    """oneDNN's packed weight, if it has a layout that `matmul_ops.matmul` reads.

    oneDNN promises no layout, so we compare the first and the last whole block with the weight.
    """
    if not all(hasattr(torch.ops.mkldnn, name) for name in INSPECTION_OPS):
        return None
    address: int = torch.ops.mkldnn.data_ptr(packed)
    n_bytes: int = torch.ops.mkldnn._nbytes(packed)
    pointers = (
        PackedPointer(address, PackFormat(pack))
        for pack in PACKS
        if _has_layout(weight, address, n_bytes, pack)
    )
    return next(pointers, None)


def _has_layout(weight: Tensor, address: int, n_bytes: int, pack: int) -> bool:
    """Whether the memory at `address` holds the weight in blocks of `pack` outputs."""
    out, width = weight.shape
    block_bytes = pack * width * 2
    if out < pack or width % 2 or n_bytes != -(-out // pack) * block_bytes:
        return False
    for block in (0, out // pack - 1):
        buffer = (ctypes.c_int16 * (pack * width)).from_address(address + block * block_bytes)
        found = torch.frombuffer(buffer, dtype=torch.int16).view(width // 2, pack, 2)
        expected = weight[block * pack : (block + 1) * pack].view(torch.int16)
        if not torch.equal(found.transpose(0, 1), expected.view(pack, width // 2, 2)):
            return False
    return True


class GpuProduct(nn.Module, ABC):
    """A linear layer on a GPU that computes what follows it in the same launch."""

    out_features: int

    @abstractmethod
    def write(self, x: Tensor, out: Tensor) -> None:
        """Computes x [tokens, in] into some columns of a larger result: out [tokens, out]."""

    @abstractmethod
    def add(self, x: Tensor, other: Tensor) -> Tensor:
        """Its result and `other`, contiguous [tokens, out], in whose memory the sum is."""

    @abstractmethod
    def gated(self, activation: GateActivation, x: Tensor) -> Tensor:
        """The activation of the first half of its outputs, times the others: [tokens, out / 2]."""


def linear_add(linear: nn.Module, x: Tensor, other: Tensor) -> Tensor:
    """`linear(x) + other`: x [..., in], other [..., out]. May overwrite `other` with it."""
    if isinstance(linear, GpuProduct) and other.is_contiguous():
        return linear.add(x, other)
    if isinstance(linear, KernelLinear):
        return linear.forward_binary(x, other, "add")
    if x.is_cuda and _is_plain_linear(linear) and linear.bias is None:
        return other.addmm_(x, linear.weight.t())  # one launch for product and sum
    return other.add_(linear(x))


def gate_mul(activation: GateActivation, gate: nn.Module, up: nn.Module, x: Tensor) -> Tensor:
    """`activation(gate(x)) * up(x)`: [..., in] -> [..., out]."""
    if isinstance(gate, KernelLinear) and isinstance(up, KernelLinear):
        return up.forward_binary(x, gate(x, ACTIVATIONS[activation]), "mul")
    return activation(gate(x)).mul_(up(x))


# Layers whose weights their parents multiply: those of Mamba and of latents.
READ_DIRECTLY = frozenset({"dt_proj", PROJECTION})


def pack_linears(module: nn.Module) -> None:
    """Replaces, in place, the linear layers in a module that are faster when packed."""
    for name, child in module.named_children():
        if is_packable(child) and name not in READ_DIRECTLY:
            # Of fewer outputs oneDNN's layout is none of those that our kernels read, and a product
            # that is not theirs can't be recorded: the gate of a shared expert has one output.
            uses_onednn = has_native_bf16() and child.out_features >= min(PACKS)
            module.register_module(name, PackedLinear(child, uses_onednn))
        else:
            pack_linears(child)


def is_packable(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether `PackedLinear` can replace the module and is faster."""
    if not _is_plain_linear(module) or not is_cpu_bf16(module.weight):
        return False
    return has_native_bf16() or has_matmul_kernels()


def _is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    # Subclasses, quantized weights and hooks may compute something else.
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    return type(module.weight.data) is Tensor
