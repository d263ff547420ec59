"""Linear layers with quantized weights: int8, int4 and fp8."""

import threading
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.forward.linear import KernelLinear, pack_for_onednn
from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.matmul_kernels import PACKS
from deployments.engine.kernels.cpu.matmul_ops import PackedPointer, PackedWeight

# Up to this many bfloat16 rows torch's int8 kernel for CPUs is faster than a dequantized product
# (tests/bench/RESULTS.md).
MAX_INT8_KERNEL_ROWS = 8
# Outputs that are dequantized at once take about this memory, which a cache holds. They are a
# multiple of those of oneDNN's largest block.
DEQUANTIZED_BYTES = 1 << 20
MIN_DEQUANTIZED_OUTPUTS = max(PACKS)
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
        self.out_features, self.in_features = weight.shape

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
        self,
        weight: Tensor,
        scale_and_zero: Tensor,
        group: int,
        sizes: tuple[int, int],
        bias: Tensor | None,
    ) -> None:
        """`sizes` are the numbers of outputs and inputs, which the weight may have more of."""
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale_and_zero", scale_and_zero)
        self.register_buffer("bias", bias)
        self._group = group
        self.out_features, self.in_features = sizes

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if flat.device.type == "cpu":
            multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        else:
            multiply = torch.ops.aten._weight_int4pack_mm
            flat = F.pad(flat, (0, -flat.shape[-1] % INT4_GPU_INPUT_MULTIPLE))
        y = multiply(flat.contiguous(), self.weight, self._group, self.scale_and_zero)
        return _add_bias_and_reshape(y[:, : self.out_features], x, self.bias)


class PackedQuantized(KernelLinear):
    """A linear layer with int8 or int4 weights, packed for our CPU kernels.

    Where the processor multiplies bfloat16, oneDNN is faster with many rows. The weights are then
    dequantized for each product, into memory that is packed as oneDNN reads it.
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
        parts = [product for _, product in self._products(x, epilogue)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _multiply_binary(self, x: Tensor, other: Tensor, epilogue: str) -> Tensor:
        for outputs, product in self._products(x, "none"):
            part = other[..., outputs]
            if epilogue == "mul":
                part.mul_(product)
            else:
                part.add_(product)
        return other

    def _products(self, x: Tensor, epilogue: str) -> Iterator[tuple[slice, Tensor]]:
        """The products [..., outputs] of some outputs after the other."""
        step = _outputs_at_once(self.in_features)
        for first in range(0, self.out_features, step):
            end = min(first + step, self.out_features)
            weight, pointer = SCRATCH.matrix(end - first, self.in_features)
            assert pointer is not None, "`can_dequantize` was not asked"
            part = self._matrix.outputs(first, end).pointer
            matmul_ops.dequantize(part, pointer, end - first, self.in_features)
            bias = None if self.bias is None else self.bias[first:end]
            product = torch.ops.mkldnn._linear_pointwise(x, weight, bias, epilogue, [], "")
            yield slice(first, end), product


def can_dequantize(n_in: int, n_out: int) -> bool:
    """Whether oneDNN packs matrices of this layer's sizes as our kernel writes them."""
    step = _outputs_at_once(n_in)
    parts = {min(step, n_out), n_out % step or step}
    return all(SCRATCH.matrix(part, n_in)[1] is not None for part in parts)


def _outputs_at_once(n_in: int) -> int:
    fitting = DEQUANTIZED_BYTES // (2 * n_in)
    return max(fitting - fitting % MIN_DEQUANTIZED_OUTPUTS, MIN_DEQUANTIZED_OUTPUTS)


class _Scratch(threading.local):
    """Each thread's matrices of oneDNN's, which weights are dequantized into."""

    def __init__(self) -> None:
        self._matrices: dict[tuple[int, int], tuple[Tensor, PackedPointer | None]] = {}

    def matrix(self, n_out: int, n_in: int) -> tuple[Tensor, PackedPointer | None]:
        """Returns what `pack_for_onednn` does. All matrices of one size share their memory."""
        found = self._matrices.get((n_out, n_in))
        if found is None:
            numbers = torch.arange(n_out * n_in).remainder_(251).to(torch.bfloat16)  # exact
            found = self._matrices[n_out, n_in] = pack_for_onednn(numbers.view(n_out, n_in))
        return found


SCRATCH = _Scratch()


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
        self.out_features, self.in_features = weight.shape

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
