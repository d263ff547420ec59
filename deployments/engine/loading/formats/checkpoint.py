"""Reads the names of a checkpoint's tensors, and joins those of each quantized weight to one.

Tensors are mapped: nothing of one is read until it is used, but for the few that say in which order
groups lie or what scales a whole tensor.

Left out is what changes no weight: the scales of inputs (see `scaled`), and those of keys and
values, which only say how to round these for a cache of 8 bits (see `has_kv_scales`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.modeling_utils import _get_resolved_checkpoint_files

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.mapped_file import FileSpan
from deployments.engine.loading.formats.methods import INSTEAD, formats_of, method_of
from deployments.engine.loading.formats.parts import WeightParts
from deployments.engine.loading.formats.safetensors_file import FileTensor, read_safetensors
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
    plain: where the tensors lie that are not quantized.
    """

    files: Sequence[str]
    tensors: Mapping[str, Tensor]
    zero_biases: frozenset[str]
    plain: Sequence[FileSpan]

    def let_go(self) -> None:
        """Gives the memory back that plain tensors take which were read to make others of them."""
        for span in self.plain:
            span.let_go()


def checkpoint_files(path: str, config: PretrainedConfig) -> list[str]:
    """The files that transformers reads the weights of a directory or hub id from."""
    named = getattr(config, "transformers_weights", None)
    files, _ = _get_resolved_checkpoint_files(path, None, None, None, None, False, named)
    return [*(files or ())]


def read_checkpoint(
    files: Sequence[str],
    options: Options,
    dtype: torch.dtype,
    choose: Callable[[Collection[str]], Collection[str]] | None = None,
) -> QuantizedCheckpoint:
    """The tensors of files with such options. dtype: that the model computes in. `choose` returns
    the names of those that are read, of all names; of them none may be quantized.

    Raises UnsupportedModelError for a format that is not read and for tensors that are not as it
    says.
    """
    formats = formats_of(options)
    found = {each.name: each for each in _tensors(files) if not NO_WEIGHT.search(each.name)}
    if choose is not None:
        found = {name: found[name] for name in choose(found.keys())}
    stored: dict[str, Tensor] = {}
    for form in formats:
        for parts in _taken_out(found, form):
            stored[parts.name + form.target] = _parameter(parts, form, options, dtype)
    if not stored and choose is None:
        raise UnsupportedModelError(
            f"its config says that its weights are quantized ({method_of(options)}), and none in "
            f"its files is: {INSTEAD}, or take quantization_config out of its config.json"
        )
    _check_plain(found.values())
    tensors = {name: tensor.mapped() for name, tensor in found.items()}
    biases = (name.removesuffix("weight") + "bias" for name in stored if name.endswith(".weight"))
    idle = {name for name in biases if name in tensors and not bool(tensors[name].any())}
    plain = [tensor.span for tensor in found.values()]
    return QuantizedCheckpoint(files, tensors | stored, frozenset(idle), plain)


def has_kv_scales(files: Sequence[str]) -> bool:
    """Whether keys and values are to be divided by anything but 1 for a cache of 8 bits."""
    scales = (each.mapped() for each in _tensors(files) if KV_SCALE.search(each.name))
    return any(bool((scale.float() != 1).any()) for scale in scales)


def _tensors(files: Sequence[str]) -> Iterator[FileTensor]:
    for file in files:
        if Path(file).suffix != ".safetensors":
            raise UnsupportedModelError(
                f"{file} has quantized weights, which are read from safetensors: {INSTEAD}"
            )
        yield from read_safetensors(Path(file))


def _taken_out(tensors: dict[str, FileTensor], form: Format) -> Iterator[WeightParts]:
    """The tensors of each weight of a format, which no longer are among all."""
    for mark in [name for name in tensors if name.endswith(form.mark)]:
        name = mark.removesuffix(form.mark)
        if mark in tensors and name + form.codes in tensors:
            ends = [end for end in form.ends if name + end in tensors]
            own = {end: tensors.pop(name + end) for end in ends}
            yield WeightParts(
                name,
                {end: tensor.mapped() for end, tensor in own.items()},
                {end: tensor.span for end, tensor in own.items()},
            )


def _parameter(parts: WeightParts, form: Format, options: Options, dtype: torch.dtype) -> Tensor:
    matrix, outer, is_transposed = form.read(parts, options)
    weight: Tensor = StoredWeight.of(matrix, (*outer, matrix.n_inputs), dtype)
    return weight.mT if is_transposed else weight


def _check_plain(tensors: Iterable[FileTensor]) -> None:
    """Raises UnsupportedModelError for codes that nothing says the numbers of."""
    for name, dtype, shape, span in tensors:
        is_matrix = len(shape) > 1 and name.endswith((".weight", "_proj"))
        if dtype not in PLAIN_DTYPES and (is_matrix or dtype.itemsize == 1):
            raise UnsupportedModelError(
                f"{span.file.path}: {name} is {str(dtype).removeprefix('torch.')}, and its files "
                f"lack what its codes stand for: {INSTEAD}"
            )
