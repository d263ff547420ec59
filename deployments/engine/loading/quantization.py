"""Gives a loaded model's linear layers weights of fewer bits; everything else stays as it was.

Embeddings keep theirs, and so does the output layer, but for where kernels of ours multiply it: it
is packed for them in any case, so that half of its bytes and of its time are saved by int8. In int4
an error there would fall on every logit undamped.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version as version_of
from itertools import pairwise
from types import ModuleType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.decoder import join
from deployments.engine.forward.linear import ALL_ROWS, KernelLinear
from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.features import can_multiply, has_instructions, suit
from deployments.engine.kernels.cpu.matmul_ops import PackedMatrix

Quantization = Literal["none", "int8", "int4", "fp8"]

# Up to so many rows torch's int8 kernel for CPUs is the faster one, in bfloat16 (RESULTS.md).
FEW_ROWS = 8
WIDENED_ROWS = 32  # from which it takes less than it saves to make bfloat16 of whole numbers
WIDENED_OUTPUTS = 1 << 14  # at once: a vocabulary's would be as large as what was saved
GROUPS = (64, 32)  # inputs that share a scale of int4, the first that divides the layer's
WIDTH = 16  # int4 kernels take outputs, and fp8 kernels both sides, in multiples of it
AT_ONCE = 8192  # outputs that int8 is made of: torchao takes several times their memory for it
GPU_STEP = 1024  # to which the int4 kernel for GPUs pads the inputs
FP8_MAX = torch.finfo(torch.float8_e4m3fn).max
LEAST = 1e-12  # that the greatest number of a row is taken to be


class QuantizationError(ValueError):
    """The model can't have such weights, or not here."""


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
        self, packed: PackedMatrix, sizes: tuple[int, int], bias: Tensor | None, most_rows: int
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
        weight = matmul_ops.widened(numbers.place, end - first, self.in_features)
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


def quantize(
    model: PreTrainedModel, quantization: Quantization, device: torch.device | str
) -> None:
    """Layer by layer, on the device, so that at most one of them is there twice.

    Matrices are joined first as `fuse` would; the model can only be run by its `decoder` then. What
    is not quantized is left where it is. Layers whose sizes the kernels can't take stay.
    Raises QuantizationError.
    """
    if quantization == "none":
        return
    check_available(quantization, device, model.dtype)
    if any(parameter.dim() == 3 for parameter in model.parameters()):
        raise QuantizationError(
            f"quantization: the experts of {type(model).__name__} are no linear layers"
        )
    join(model, device)
    layers = _layers(model)
    made = [_replace(parent, name, quantization, device) for parent, name in layers]
    if not any(made):
        raise QuantizationError(
            f"quantization: no linear layer of {type(model).__name__} has sizes for {quantization}"
        )
    if torch.device(device).type == "cpu":
        _quantize_output(model)


def check_available(
    quantization: Quantization, device: torch.device | str, dtype: torch.dtype
) -> None:
    """Raises QuantizationError for what these settings can't be on this device."""
    if quantization == "none":
        return
    on_gpu = torch.device(device).type == "cuda"
    if quantization == "fp8":
        if not on_gpu or torch.cuda.get_device_capability(device) < (8, 9):
            raise QuantizationError(
                "quantization: fp8 needs a GPU of compute capability 8.9 or later"
            )
    else:
        torchao()
    if quantization != "int8" and dtype != torch.bfloat16:
        raise QuantizationError(f"quantization: {quantization} needs dtype bfloat16")


def torchao() -> ModuleType:
    """Raises QuantizationError where it is not installed."""
    try:
        return import_module("torchao.quantization")
    except ImportError as error:
        message = "quantization: int8 and int4 need torchao: pip install -e '.[quantization]'"
        raise QuantizationError(message) from error


def described(quantization: Quantization) -> str:
    """What weights depend on beside those that they were made of."""
    if quantization in ("int8", "int4"):
        output = "int8 output" if can_multiply() else "output as it was"
        return f"{quantization} {GROUPS} {output} {version_of('torchao')}"
    return quantization


def _layers(model: PreTrainedModel) -> list[tuple[nn.Module, str]]:
    """Of every linear layer but the output's: who has it, and its name there."""
    output = model.get_output_embeddings()
    return [
        (parent, name)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Linear and layer is not output
    ]


@torch.no_grad()
def _replace(
    parent: nn.Module, name: str, quantization: Quantization, device: torch.device | str
) -> bool:
    layer = parent.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    made = MAKERS[quantization](*_weights(layer, device))
    if made is not None:
        setattr(parent, name, made)
    return made is not None


@torch.no_grad()
def _quantize_output(model: PreTrainedModel) -> None:
    output = model.get_output_embeddings()
    if type(output) is nn.Linear and _has_kernels(output.weight):
        model.set_output_embeddings(_int8(*_weights(output, "cpu")))


def _weights(layer: nn.Linear, device: torch.device | str) -> tuple[Tensor, Tensor | None]:
    bias = None if layer.bias is None else layer.bias.detach().to(device)
    return layer.weight.detach().to(device), bias


def _int8(weight: Tensor, bias: Tensor | None) -> nn.Module:
    config = torchao().Int8WeightOnlyConfig(set_inductor_config=False)
    made = [_through(config, part) for part in torch.split(weight, AT_ONCE)]
    numbers = torch.cat([part.qdata for part in made])
    scale = torch.cat([part.scale.flatten() for part in made]).to(weight.dtype)
    if not _has_kernels(weight):
        return Int8Linear(numbers, scale, bias)
    return _packed(matmul_ops.pack_int8(numbers, scale), weight, bias)


def _int4(weight: Tensor, bias: Tensor | None) -> nn.Module | None:
    n_out, n_in = weight.shape
    group = next((group for group in GROUPS if n_in % group == 0), None)
    if group is None or n_out % WIDTH:
        return None
    if weight.device.type == "cpu":
        layout = import_module("torchao.prototype.quantization.int4")
        config = layout.PrototypeInt4WeightOnlyConfig(group_size=group, set_inductor_config=False)
    else:
        config = torchao().Int4WeightOnlyConfig(
            group_size=group,
            int4_packing_format="tile_packed_to_4d",
            set_inductor_config=False,
        )
    made = _through(config, weight)
    if not _has_kernels(weight):
        return Int4Linear(made.qdata, made.scale_and_zero, group, n_out, bias)
    return _packed(_numbers(weight, made.scale_and_zero), weight, bias)


def _numbers(weight: Tensor, scale_and_zero: Tensor) -> PackedMatrix:
    """The nearest numbers of four bits under torchao's scales, whose own order of them depends on
    the processor."""
    scale, zero = scale_and_zero.transpose(0, 1).unbind(2)  # [out, groups]; of 8, by its zero
    least = (zero.float() - 8 * scale.float()).to(zero.dtype)
    groups = weight.float().view(*scale.shape, -1)
    numbers = (groups - least.float()[..., None]) / scale.float()[..., None]
    rounded = numbers.round_().clamp_(0, 15).to(torch.uint8)
    return matmul_ops.pack_int4(rounded.view(weight.shape), scale, least)


def _packed(numbers: PackedMatrix, weight: Tensor, bias: Tensor | None) -> PackedQuantized:
    n_out, n_in = weight.shape
    most_rows = WIDENED_ROWS - 1 if has_instructions() else ALL_ROWS
    return PackedQuantized(numbers, (n_in, n_out), bias, most_rows)


def _has_kernels(weight: Tensor) -> bool:
    return suit(weight) and can_multiply()


def _float8(weight: Tensor, bias: Tensor | None) -> nn.Module | None:
    if any(size % WIDTH for size in weight.shape):
        return None
    rows, scale = to_float8(weight)
    return Float8Linear(rows, scale.t().contiguous(), bias)


def _through(config: object, weight: Tensor):  # type: ignore[no-untyped-def]  # torchao's tensors
    """What torchao makes of a weight. Its tensors' own dispatch costs a multiple of a small
    product on a CPU: only their parts are kept."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    torchao().quantize_(layer, config)
    return layer.weight


def _shaped(y: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], y.shape[-1])


MAKERS: Mapping[str, Callable[[Tensor, Tensor | None], nn.Module | None]] = {
    "int8": _int8,
    "int4": _int4,
    "fp8": _float8,
}
