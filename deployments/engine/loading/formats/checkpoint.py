"""Reads the names of a checkpoint's tensors, and joins those of each quantized weight to one.

Tensors are mapped: nothing of one is read until it is used, but for the few that say in which order
groups lie or what scales a whole tensor.

Left out is what changes no weight: the scales of inputs (see `scaled`), and those of keys and
values, which only say how to round these for a cache of 8 bits (see `has_kv_scales`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PretrainedConfig
from transformers.modeling_utils import _get_resolved_checkpoint_files

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.methods import INSTEAD, formats_of, method_of
from deployments.engine.loading.formats.parts import WeightParts
from deployments.engine.loading.formats.table import Format, Options
from deployments.engine.quantized.stored_weight import StoredWeight

NO_WEIGHT = re.compile(
    r"\.(input_scale|input_scale_ub|input_global_scale|input_zero_point|activation_scale|qscale_act"
    r"|[kvq]_scale|kv_scale|[kv]_zero_point|output_scale|output_zero_point|prob_output_scale)$"
)
KV_SCALE = re.compile(r"\.([kv]_scale|kv_scale|[kv]_proj\.output_scale)$")
PLAIN_DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool})


@dataclass(frozen=True)
class QuantizedCheckpoint:
    """The tensors of a checkpoint.

    tensors: by their names in the files, and StoredWeights by those of the weights that they are.
    zero_biases: the names of biases of quantized modules that are 0. GPTQ's tools write one for
        each module, also where the model has none.
    """

    tensors: Mapping[str, Tensor]
    zero_biases: frozenset[str]


def checkpoint_files(path: str, config: PretrainedConfig) -> list[str]:
    """The files that transformers reads the weights of a directory or hub id from."""
    named = getattr(config, "transformers_weights", None)
    files, _ = _get_resolved_checkpoint_files(path, None, None, None, None, False, named)
    return [*(files or ())]


def read_checkpoint(
    files: Sequence[str], options: Options, dtype: torch.dtype
) -> QuantizedCheckpoint:
    """The tensors of files with such options. dtype: that the model computes in.

    Raises UnsupportedModelError for a format that is not read and for tensors that are not as it
    says.
    """
    formats = formats_of(options)
    tensors = {name: tensor for name, tensor in _mapped(files) if not NO_WEIGHT.search(name)}
    stored: dict[str, Tensor] = {}
    for form in formats:
        for parts in _taken_out(tensors, form):
            stored[parts.name + form.target] = _parameter(parts, form, options, dtype)
    if not stored:
        raise UnsupportedModelError(
            f"its config says that its weights are quantized ({method_of(options)}), and none in "
            f"its files is: {INSTEAD}, or take quantization_config out of its config.json"
        )
    _check_plain(tensors)
    biases = (name.removesuffix("weight") + "bias" for name in stored if name.endswith(".weight"))
    idle = {name for name in biases if name in tensors and not bool(tensors[name].any())}
    return QuantizedCheckpoint(tensors | stored, frozenset(idle))


def has_kv_scales(files: Sequence[str]) -> bool:
    """Whether keys and values are to be divided by anything but 1 for a cache of 8 bits."""
    scales = (tensor for name, tensor in _mapped(files) if KV_SCALE.search(name))
    return any(bool((scale.float() != 1).any()) for scale in scales)


def _mapped(files: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    for file in files:
        if Path(file).suffix != ".safetensors":
            raise UnsupportedModelError(
                f"{file} has quantized weights, which are read from safetensors: {INSTEAD}"
            )
        with safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118
                yield name, opened.get_tensor(name)


def _taken_out(tensors: dict[str, Tensor], form: Format) -> Iterator[WeightParts]:
    """The tensors of each weight of a format, which no longer are among all."""
    for mark in [name for name in tensors if name.endswith(form.mark)]:
        name = mark.removesuffix(form.mark)
        if mark in tensors and name + form.codes in tensors:
            ends = [end for end in form.ends if name + end in tensors]
            yield WeightParts(name, {end: tensors.pop(name + end) for end in ends})


def _parameter(parts: WeightParts, form: Format, options: Options, dtype: torch.dtype) -> Tensor:
    matrix, outer, is_transposed = form.read(parts, options)
    weight: Tensor = StoredWeight.of(matrix, (*outer, matrix.n_inputs), dtype)
    return weight.mT if is_transposed else weight


def _check_plain(tensors: Mapping[str, Tensor]) -> None:
    """Raises UnsupportedModelError for codes that nothing says the numbers of."""
    for name, tensor in tensors.items():
        is_matrix = tensor.dim() > 1 and name.endswith((".weight", "_proj"))
        if tensor.dtype not in PLAIN_DTYPES and (is_matrix or tensor.element_size() == 1):
            raise UnsupportedModelError(
                f"{name} is {str(tensor.dtype).removeprefix('torch.')}, and its files lack what "
                f"its codes stand for: {INSTEAD}"
            )
