"""Gives a loaded model's linear layers weights of fewer bits; everything else stays as it was.

Embeddings keep theirs, and so does the output layer, but for where kernels of ours multiply it: it
is packed for them in any case, so that half of its bytes and of its time are saved by int8. In int4
an error there would fall on every logit undamped.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version as version_of
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.fusing import fuse_projections
from deployments.engine.forward.linear import ALL_ROWS
from deployments.engine.forward.quantized_linear import (
    Float8Linear,
    Int4Linear,
    Int8Linear,
    PackedQuantized,
    to_float8,
)
from deployments.engine.kernels.cpu import matmul_ops
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16, is_cpu_bf16
from deployments.engine.kernels.cpu.matmul_ops import PackedWeight

Quantization = Literal["none", "int8", "int4", "fp8"]

# From this number of rows on, oneDNN's bfloat16 product saves more time than dequantizing takes.
MIN_DEQUANTIZED_ROWS = 32
GROUPS = (64, 32)  # inputs that share a scale of int4, the first that divides the layer's
WIDTH = 16  # int4 kernels take outputs, and fp8 kernels both sides, in multiples of it
AT_ONCE = 8192  # outputs that int8 is made of: torchao takes several times their memory for it


class QuantizationError(ValueError):
    """The model can't have such weights, or not here."""


def quantize(
    model: PreTrainedModel, quantization: Quantization, device: torch.device | str
) -> None:
    """Layer by layer, on the device, so that at most one of them is there twice.

    Projections are fused first, as `fuse` does: the model can then only be called through its
    `decoder`. Layers whose sizes the kernels can't take keep their weights. What is not quantized
    stays on its device. Raises QuantizationError.
    """
    if quantization == "none":
        return
    check_available(quantization, device, model.dtype)
    if any(parameter.dim() == 3 for parameter in model.parameters()):
        raise QuantizationError(
            f"quantization: the experts of {type(model).__name__} are no linear layers"
        )
    fuse_projections(model, device)
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
        output = "int8 output" if has_matmul_kernels() else "output as it was"
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


def _numbers(weight: Tensor, scale_and_zero: Tensor) -> PackedWeight:
    """The nearest numbers of four bits under torchao's scales, whose own order of them depends on
    the processor."""
    scale, zero = scale_and_zero.transpose(0, 1).unbind(2)  # [out, groups]; of 8, by its zero
    least = (zero.float() - 8 * scale.float()).to(zero.dtype)
    groups = weight.float().view(*scale.shape, -1)
    numbers = (groups - least.float()[..., None]) / scale.float()[..., None]
    rounded = numbers.round_().clamp_(0, 15).to(torch.uint8)
    return matmul_ops.pack_int4(rounded.view(weight.shape), scale, least)


def _packed(numbers: PackedWeight, weight: Tensor, bias: Tensor | None) -> PackedQuantized:
    n_out, n_in = weight.shape
    max_kernel_rows = MIN_DEQUANTIZED_ROWS - 1 if has_native_bf16() else ALL_ROWS
    return PackedQuantized(numbers, (n_in, n_out), bias, max_kernel_rows)


def _has_kernels(weight: Tensor) -> bool:
    return is_cpu_bf16(weight) and has_matmul_kernels()


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


MAKERS: Mapping[str, Callable[[Tensor, Tensor | None], nn.Module | None]] = {
    "int8": _int8,
    "int4": _int4,
    "fp8": _float8,
}
