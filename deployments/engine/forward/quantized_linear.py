"""Linear layers with quantized weights: int8, int4 and fp8."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.forward.linear import KernelLinear
from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.matmul_ops import PackedWeight

# Up to this many bfloat16 rows torch's int8 kernel for CPUs is faster than a dequantized product
# (tests/bench/RESULTS.md).
MAX_INT8_KERNEL_ROWS = 8
# Outputs that are dequantized at once. All outputs of a vocabulary would take the memory that
# quantization has saved.
MAX_DEQUANTIZED_OUTPUTS = 1 << 14
INT4_GPU_INPUT_MULTIPLE = 1024  # torch's int4 kernel for GPUs takes such numbers of inputs
FP8_MAX = torch.finfo(torch.float8_e4m3fn).max
MIN_AMAX = 1e-12  # the smallest maximum of a row, so that its scale is not 0


class Int8Linear(nn.Module):
    """A linear layer with int8 weights and a scale for each output."""

    weight: Tensor  # [out, in] int8
    scale: Tensor  # [out]
    bias: Tensor | None  # [out]

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if (
            flat.device.type == "cpu"
            and x.dtype == torch.bfloat16
            and len(flat) <= MAX_INT8_KERNEL_ROWS
        ):
            y = torch._weight_int8pack_mm(flat, self.weight, self.scale)
        else:
            y = F.linear(flat, self.weight.to(x.dtype)).mul_(self.scale)
        return _add_bias_and_reshape(y, x, self.bias)


class Int4Linear(nn.Module):
    """A linear layer with int4 weights, and a scale and a zero for each output and input group."""

    weight: Tensor  # in the layout of torch's kernels
    scale_and_zero: Tensor  # [groups, out, 2]
    bias: Tensor | None  # [out]

    def __init__(
        self, weight: Tensor, scale_and_zero: Tensor, group: int, n_out: int, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale_and_zero", scale_and_zero)
        self.register_buffer("bias", bias)
        self._group = group
        self._n_out = n_out

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if flat.device.type == "cpu":
            multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        else:
            multiply = torch.ops.aten._weight_int4pack_mm
            flat = F.pad(flat, (0, -flat.shape[-1] % INT4_GPU_INPUT_MULTIPLE))
        y = multiply(flat.contiguous(), self.weight, self._group, self.scale_and_zero)
        return _add_bias_and_reshape(y[:, : self._n_out], x, self.bias)


class PackedQuantized(KernelLinear):
    """A linear layer with int8 or int4 weights, packed for our CPU kernels.

    Where the processor multiplies bfloat16, oneDNN is faster with many rows. The weights are then
    dequantized for each product.
    """

    weight: Tensor  # packed
    scales: Tensor  # packed

    def __init__(
        self,
        packed: PackedWeight,
        sizes: tuple[int, int],
        bias: Tensor | None,
        max_kernel_rows: int,
    ) -> None:
        """`sizes` are the numbers of inputs and outputs.

        Our kernel multiplies up to `max_kernel_rows` rows.
        """
        super().__init__(sizes, bias, packed.pointer, max_kernel_rows)
        self._matrix = packed  # owns the memory that our kernel reads by its address
        self.register_buffer("weight", packed.weights)
        self.register_buffer("scales", packed.scales)

    def _multiply(self, x: Tensor, epilogue: str) -> Tensor:
        ends = [*range(0, self.out_features, MAX_DEQUANTIZED_OUTPUTS), self.out_features]
        parts = [self._multiply_outputs(x, *bounds) for bounds in pairwise(ends)]
        y = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return F.silu(y) if epilogue == "swish" else y

    def _multiply_outputs(self, x: Tensor, first: int, end: int) -> Tensor:
        """[..., in] -> [..., end - first], the outputs from `first` to `end`."""
        part = self._matrix.outputs(first, end)
        weight = matmul_ops.dequantized(part.pointer, end - first, self.in_features)
        return F.linear(x, weight.t(), None if self.bias is None else self.bias[first:end])

    def _multiply_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        y = self._multiply(x, "none")
        return y.mul_(other) if epilogue == "mul" else y.add_(other)


class Float8Linear(nn.Module):
    """A linear layer with float8 weights and a scale for each output.

    Each row of its input is converted to float8 with a scale of its own.
    """

    weight: Tensor  # [out, in] float8_e4m3fn
    scale: Tensor  # [1, out] float32
    bias: Tensor | None  # [out]

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        rows, scale = to_float8(x.reshape(-1, x.shape[-1]))
        y = torch._scaled_mm(
            rows, self.weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=x.dtype
        )
        return _add_bias_and_reshape(y, x, self.bias)


def to_float8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantizes rows [n, in]: returns them as float8_e4m3fn, and their scales [n, 1] float32.

    A row is its float8 values times its scale.
    """
    if rows.is_cuda:  # one launch instead of eight, before every product
        from deployments.engine.kernels.gpu import layer_ops

        return layer_ops.to_float8(rows.contiguous(), MIN_AMAX)
    values = rows.float()
    scale = values.abs().amax(1, keepdim=True).clamp_(min=MIN_AMAX) / FP8_MAX
    return (values / scale).clamp_(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale


def _add_bias_and_reshape(y: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    """Adds the bias to y [rows, out] and gives it the leading dimensions of x."""
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], y.shape[-1])
