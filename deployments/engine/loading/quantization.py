"""Quantizes the linear layers of a loaded model; all other weights keep their type.

The output layer becomes int8 where the engine's own CPU kernels multiply it, which halves its bytes
and its time. Elsewhere it keeps its type. It never becomes int4: no later layer would dampen the
error in its logits.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version as version_of
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.engine.forward.fusing import fuse_projections
from deployments.engine.forward.linear import READ_DIRECTLY
from deployments.engine.forward.quantized_linear import (
    Float8Linear,
    Int4Linear,
    Int8Linear,
    PackedQuantized,
    to_float8,
)
from deployments.engine.kernels.cpu.features import has_matmul_kernels, is_cpu_bf16
from deployments.engine.kernels.cpu.packed_weight import pack_rows
from deployments.engine.quantized.layout import INT8, integers
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows

Quantization = Literal["none", "int8", "int4", "fp8"]

# Inputs that share a scale of int4: the first size that divides the layer's inputs.
GROUP_SIZES = (64, 32)
# Int4 kernels need a multiple of this many outputs, fp8 kernels of both inputs and outputs.
SIZE_MULTIPLE = 16
# Outputs that become int8 at the same time: torchao needs several times their memory meanwhile.
MAX_CHUNK_OUTPUTS = 8192
# They warn at torchao's import of libraries for other GPUs, and of what it registers with torch.
NOISY = ("torchao", "torch.utils._pytree")


class QuantizationError(ValueError):
    """The model, the device or the installation does not allow this quantization."""


def quantize(
    model: PreTrainedModel, quantization: Quantization, device: torch.device | str
) -> None:
    """Quantizes a model in place, layer by layer on the device.

    At most one layer is on the device twice. Projections are fused first, as `fuse` does, so that
    only the model's `decoder` can run it afterwards. Layers whose sizes the kernels don't support
    stay as they are. What is not quantized stays on its device.

    Raises QuantizationError for settings that are not available and for models with experts or
    without a layer of a supported size.
    """
    if quantization == "none":
        return
    check_available(quantization, device, model.dtype)
    if any(parameter.dim() == 3 for parameter in _parameters_but_convolutions(model)):
        raise QuantizationError(
            f"quantization: the experts of {type(model).__name__} are no linear layers"
        )
    fuse_projections(model, device)
    layers = _hidden_linears(model)
    is_replaced = [_replace(parent, name, quantization, device) for parent, name in layers]
    if not any(is_replaced):
        raise QuantizationError(
            f"quantization: no linear layer of {type(model).__name__} has sizes for {quantization}"
        )
    if torch.device(device).type == "cpu":
        _quantize_output(model)


def _parameters_but_convolutions(model: PreTrainedModel) -> Iterator[nn.Parameter]:
    for module in model.modules():
        if not isinstance(module, nn.Conv1d):
            yield from module.parameters(recurse=False)


def check_available(
    quantization: Quantization, device: torch.device | str, dtype: torch.dtype
) -> None:
    """Raises QuantizationError if the device, the type or the installation does not allow it."""
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
    """The module `torchao.quantization`. Raises QuantizationError if it is not installed."""
    if sys.modules.get("torchao") is None:  # as `deployments/__init__.py` left it
        sys.modules.pop("torchao", None)
    try:
        with _without_warnings(*NOISY):
            return import_module("torchao.quantization")
    except ImportError as error:
        message = "quantization: int8 and int4 need torchao: pip install -e '.[quantization]'"
        raise QuantizationError(message) from error


@contextmanager
def _without_warnings(*loggers: str) -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in loggers}
    try:
        for name in loggers:
            logging.getLogger(name).setLevel(logging.ERROR)
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def describe_quantization(quantization: Quantization) -> str:
    """Everything beside the original weights that the quantized ones depend on, for fingerprints.

    Another text would change the fingerprint of every quantized model.
    """
    if quantization in ("int8", "int4"):
        output = "int8 output" if has_matmul_kernels() else "output as it was"
        return f"{quantization} {GROUP_SIZES} {output} {version_of('torchao')}"
    return quantization


def _hidden_linears(model: PreTrainedModel) -> list[tuple[nn.Module, str]]:
    """Every linear layer except the output layer, as its parent module and its name there."""
    output = model.get_output_embeddings()
    return [
        (parent, name)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Linear and layer is not output and name not in READ_DIRECTLY
    ]


@torch.no_grad()
def _replace(
    parent: nn.Module, name: str, quantization: Quantization, device: torch.device | str
) -> bool:
    """Quantizes one layer. Returns whether its sizes allow it."""
    layer = parent.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    quantized = QUANTIZERS[quantization](*_weight_and_bias(layer, device))
    if quantized is not None:
        parent.register_module(name, quantized)
    return quantized is not None


@torch.no_grad()
def _quantize_output(model: PreTrainedModel) -> None:
    output = model.get_output_embeddings()
    if type(output) is nn.Linear and _has_kernels(output.weight):
        model.set_output_embeddings(_int8(*_weight_and_bias(output, "cpu")))


def _weight_and_bias(layer: nn.Linear, device: torch.device | str) -> tuple[Tensor, Tensor | None]:
    bias = None if layer.bias is None else layer.bias.detach().to(device)
    return layer.weight.detach().to(device), bias


def _int8(weight: Tensor, bias: Tensor | None) -> nn.Module:
    config = torchao().Int8WeightOnlyConfig(set_inductor_config=False)
    chunks = [_torchao_weight(config, part) for part in torch.split(weight, MAX_CHUNK_OUTPUTS)]
    int8_weight = torch.cat([chunk.qdata for chunk in chunks])
    scale = torch.cat([chunk.scale.flatten() for chunk in chunks]).to(weight.dtype)
    if not _has_kernels(weight):
        return Int8Linear(int8_weight, scale, bias)
    rows = QuantizedRows(INT8, int8_weight.view(torch.uint8), Factors(scale[:, None]))
    return _packed(rows, bias)


def _int4(weight: Tensor, bias: Tensor | None) -> nn.Module | None:
    n_out, n_in = weight.shape
    group_size = next((size for size in GROUP_SIZES if n_in % size == 0), None)
    if group_size is None or n_out % SIZE_MULTIPLE:
        return None
    if weight.device.type == "cpu":
        layout = import_module("torchao.prototype.quantization.int4")
        config = layout.PrototypeInt4WeightOnlyConfig(
            group_size=group_size, set_inductor_config=False
        )
    else:
        config = torchao().Int4WeightOnlyConfig(
            group_size=group_size,
            int4_packing_format="tile_packed_to_4d",
            set_inductor_config=False,
        )
    quantized = _torchao_weight(config, weight)
    if not _has_kernels(weight):
        sizes = n_out, n_in
        return Int4Linear(quantized.qdata, quantized.scale_and_zero, group_size, sizes, bias)
    return _packed(_int4_rows(weight, quantized.scale_and_zero), bias)


def _int4_rows(weight: Tensor, scale_and_zero: Tensor) -> QuantizedRows:
    """Rounds a weight [out, in] to int4 by torchao's scales [groups, out, 2].

    Torchao's own int4 values are not used: their layout depends on the processor.
    """
    # [out, groups] each; the int4 value 8 stands for `zero`.
    scale, zero = scale_and_zero.transpose(0, 1).unbind(2)
    minimum = (zero.float() - 8 * scale.float()).to(zero.dtype)
    groups = weight.float().view(*scale.shape, -1)
    scaled = (groups - minimum.float()[..., None]) / scale.float()[..., None]
    int4_weight = scaled.round_().clamp_(0, 15).to(torch.uint8)
    codes = int4_weight.view(weight.shape)
    return QuantizedRows(integers(4), codes, Factors(scale), Factors(minimum))


def _packed(rows: QuantizedRows, bias: Tensor | None) -> PackedQuantized:
    packed = pack_rows(
        lambda first, end: rows.take(slice(first, end)), rows.layout, *rows.codes.shape
    )
    assert packed is not None, "`_has_kernels` was not asked"
    return PackedQuantized(packed, bias)


def _has_kernels(weight: Tensor) -> bool:
    """Whether the engine's own CPU kernels multiply this weight."""
    return is_cpu_bf16(weight) and has_matmul_kernels()


def _float8(weight: Tensor, bias: Tensor | None) -> nn.Module | None:
    if any(size % SIZE_MULTIPLE for size in weight.shape):
        return None
    float8_weight, scale = to_float8(weight)
    return Float8Linear(float8_weight, scale.t().contiguous(), bias)


def _torchao_weight(config: object, weight: Tensor):  # type: ignore[no-untyped-def]  # its tensors
    """A weight quantized by torchao, as its tensor subclass.

    Callers keep only its parts: on a CPU the dispatch of the subclass takes several times as long
    as a small product.
    """
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    torchao().quantize_(layer, config)
    return layer.weight


QUANTIZERS: Mapping[str, Callable[[Tensor, Tensor | None], nn.Module | None]] = {
    "int8": _int8,
    "int4": _int4,
    "fp8": _float8,
}
