"""Quantizes the linear layers and experts of a loaded model; all other weights keep their type.

The output layer becomes int8, which halves its bytes and its time. It never has fewer bits: no
later layer would dampen the error in its logits.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from torch import nn
from transformers import PreTrainedModel

from deployments.engine.forward.linear import READ_DIRECTLY
from deployments.engine.forward.products.experts import are_replaceable
from deployments.engine.forward.products.making import stored_weights
from deployments.engine.quantized.rounding import (
    INT4_GROUPS,
    Round,
    RoundedMatrix,
    int4_group,
    to_float8,
    to_int4,
    to_int8,
)
from deployments.engine.quantized.stored_weight import StoredWeight

Quantization = Literal["none", "int8", "int4", "fp8"]

ROUND: Mapping[Quantization, Round] = {"int8": to_int8, "int4": to_int4, "fp8": to_float8}
OUTPUT: Mapping[Quantization, Quantization] = {"int8": "int8", "int4": "int8", "fp8": "fp8"}
# Another number changes the fingerprint of every model that is quantized at its load.
VERSION = 2


class QuantizationError(ValueError):
    """The model does not allow this quantization."""


def quantize(model: PreTrainedModel, quantization: Quantization) -> None:
    """Replaces weights of a model, in place, by such that are rounded when their products are made.

    Layers whose sizes a quantization does not allow stay as they are.

    Raises QuantizationError for models whose weights are quantized already, and for those without a
    layer of a size that is allowed.
    """
    if quantization == "none":
        return
    if found := stored_weights(model):
        storage = found[0].data
        assert isinstance(storage, StoredWeight)
        raise QuantizationError(
            f"quantization: the weights of its files are quantized already "
            f"({storage.storage_format}): leave it out"
        )
    output = model.get_output_embeddings()
    n_rounded = 0
    for module, name in _weights(model):
        kind = OUTPUT[quantization] if module is output else quantization
        weight = module.get_parameter(name)
        if kind == "int4" and int4_group(weight.shape[-1]) is None:
            continue
        n_rounded += module is not output
        matrix = RoundedMatrix(kind, weight, ROUND[kind])
        rounded = StoredWeight.of(matrix, weight.shape, weight.dtype)
        module.register_parameter(name, nn.Parameter(rounded, requires_grad=False))
    if not n_rounded:
        raise QuantizationError(
            f"quantization: no layer of {type(model).__name__} has sizes for {quantization}"
        )


def _weights(model: PreTrainedModel) -> Iterator[tuple[nn.Module, str]]:
    """Every matrix of a linear layer or of experts, as its module and its name there."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Linear and name not in READ_DIRECTLY:
                yield child, "weight"
        if are_replaceable(parent):
            for name, weight in [*parent.named_parameters(recurse=False)]:
                if weight.dim() == 3:
                    yield parent, name


def describe_quantization(quantization: Quantization) -> str:
    """Everything beside the original weights that the quantized ones depend on, for fingerprints.

    Another text would change the fingerprint of every quantized model.
    """
    return f"{quantization} {INT4_GROUPS} {VERSION}"
