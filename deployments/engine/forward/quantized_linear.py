"""Linear layers with weights of fewer bits: int8, int4 and fp8."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.forward.linear import KernelLinear
from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.matmul_ops import PackedWeight

# Up to so many rows torch's int8 kernel for CPUs is the faster one, in bfloat16 (RESULTS.md).
FEW_ROWS = 8
WIDENED_OUTPUTS = 1 << 14  # at once: a vocabulary's would be as large as what was saved
GPU_STEP = 1024  # to which the int4 kernel for GPUs pads the inputs
FP8_MAX = torch.finfo(torch.float8_e4m3fn).max
LEAST = 1e-12  # that the greatest number of a row is taken to be


class Int8Linear(nn.Module):
    """A scale for each output. `weight` [out, in] int8, `scale` [out]."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if flat.device.type == "cpu" and x.dtype == torch.bfloat16 and len(flat) <= FEW_ROWS:
            y = torch._weight_int8pack_mm(flat, self.weight, self.scale)
        else:
            y = F.linear(flat, self.weight.to(x.dtype)).mul_(self.scale)
        return _shaped(y, x, self.bias)


class Int4Linear(nn.Module):
    """A scale and a zero for each output and group of inputs, in the layout of torch's kernels."""

    weight: Tensor
    scale_and_zero: Tensor  # [groups, out, 2]
    bias: Tensor | None

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
            flat = F.pad(flat, (0, -flat.shape[-1] % GPU_STEP))
        y = multiply(flat.contiguous(), self.weight, self._group, self.scale_and_zero)
        return _shaped(y[:, : self._n_out], x, self.bias)


class PackedQuantized(KernelLinear):
    """Of int8 or int4, for kernels of ours on a CPU. With many rows oneDNN is faster where the
    processor multiplies bfloat16, so that the weights become that once more."""

    weight: Tensor
    scales: Tensor

    def __init__(
        self, packed: PackedWeight, sizes: tuple[int, int], bias: Tensor | None, most_rows: int
    ) -> None:
        """`sizes` are inputs and outputs; of up to `most_rows` the kernels take the numbers."""
        super().__init__(sizes, bias, packed.place, most_rows)
        self._matrix = packed  # kept: the kernels are told where it lies
        self.register_buffer("weight", packed.weights)
        self.register_buffer("scales", packed.scales)

    def _multiply(self, x: Tensor, then: str) -> Tensor:
        ends = [*range(0, self.out_features, WIDENED_OUTPUTS), self.out_features]
        parts = [self._some(x, *both) for both in pairwise(ends)]
        y = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return F.silu(y) if then == "swish" else y

    def _some(self, x: Tensor, first: int, end: int) -> Tensor:
        numbers = self._matrix.outputs(first, end)
        weight = matmul_ops.dequantized(numbers.place, end - first, self.in_features)
        return F.linear(x, weight.t(), None if self.bias is None else self.bias[first:end])

    def _multiply_with_other(self, x: Tensor, other: Tensor, then: str) -> Tensor:
        y = self._multiply(x, "none")
        return y.mul_(other) if then == "mul" else y.add_(other)


class Float8Linear(nn.Module):
    """A scale for each output, and one for each token, whose values become float8 as well."""

    weight: Tensor  # [out, in] float8_e4m3fn
    scale: Tensor  # [1, out] float32
    bias: Tensor | None

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        tokens, scale = to_float8(x.reshape(-1, x.shape[-1]))
        y = torch._scaled_mm(
            tokens, self.weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=x.dtype
        )
        return _shaped(y, x, self.bias)


def to_float8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, in] as float8_e4m3fn, and what each has to be multiplied by: [n, 1] float32."""
    if rows.is_cuda:  # before every product: one launch and not eight
        from deployments.engine.kernels.gpu import layer_ops as layer_launch

        return layer_launch.to_float8(rows.contiguous(), LEAST)
    wide = rows.float()
    scale = wide.abs().amax(1, keepdim=True).clamp_(min=LEAST) / FP8_MAX
    return (wide / scale).clamp_(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale


def _shaped(y: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], y.shape[-1])
