"""Compares a config with the headers of the weights beside it, before anything is allocated: every
weight of the model is in the files, in its own shape, and no weight of what is served is left out.

The model is made on the meta device, and transformers' own loader gives it tensors without numbers:
so names are converted, experts merged and weights tied as they will be."""

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoModel, PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils import logging as bars

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.loading.formats.checkpoint import QuantizedCheckpoint, checkpoint_files
from deployments.engine.loading.formats.quantized_model import plain_config
from deployments.engine.loading.formats.safetensors_file import read_safetensors

log = logging.getLogger(__name__)

META = {"": torch.device("meta")}
# Parameters of a model: for each tensor of its files, and beside these. Matrices that were joined
# in the files are several, those of experts one.
PARAMETERS_PER_TENSOR, MORE_PARAMETERS = 4, 1_000
MAX_BUFFER_BYTES = 1 << 28  # of what files don't have, where they are no larger themselves
POSITIONS, POSITION_TABLE = "position_embedding_type", ".position_embeddings."
MAX_LISTED_WEIGHTS = 3  # that an error names
QUANTIZATION_TENSOR = re.compile(r"(scale|zero|qweight)[^.]*$")  # the end of its name
POOLER = re.compile(r"(\w+\.)?pooler\.")
# Draft layers, by the names of all their weights or by those that only such layers have.
DRAFT = re.compile(r"(^|\.)(mtp|nextn|eagle|medusa)[^.]*\.")
DRAFT_PART = re.compile(r"(^|\.)(eh_proj|enorm|hnorm|shared_head)\.")
# What modules of before kept, and compute now: frequencies, positions and masks.
COMPUTED = re.compile(
    r"inv_freq$|(cos|sin)_cached$|(^|\.)(position_ids|token_type_ids|relative_position_index)$"
    r"|\.(attn|attention|self_attn|self_attention|crossattention)\.(masked_)?bias$"
    r"|\.causal_mask$|\.num_batches_tracked$"
)
# Beside the layers: what a text passes through, as no head and no tower of another kind does.
ON_THE_WAY = re.compile(r"(\w*embed\w*|(\w+_)?norm\w*|ln_\w+|w[tp]e)(\.|$)", re.IGNORECASE)
BESIDE_IT = re.compile(r"vision|visual|image|img|video|audio|speech|sound|vocab_", re.IGNORECASE)


def check_weights(
    path: str,
    config: PretrainedConfig,
    dtype: torch.dtype,
    auto: Any,
    quantized: QuantizedCheckpoint | None = None,
) -> None:
    """Raises UnsupportedModelError unless the files of a directory or hub id have all weights of
    the model that `auto` makes of its config, in their shapes, and none of its layers that it does
    not know. OSError: it has no files of weights.

    quantized: its tensors, where they are quantized.
    """
    reason = f"{config.model_type} can't be loaded"
    with unsupported_on_error(reason):
        files = checkpoint_files(path, config) if quantized is None else quantized.files
        found = _found(files) if quantized is None else _without_numbers(quantized.tensors)
    with _named(files), unsupported_on_error(reason):
        model = _made(config, dtype, auto, len(found))
        _check_positions(model)
        _check_buffers(model, sum(tensor.nbytes for tensor in found.values()))
        info = _compared(model, found, dtype)
        if quantized is not None:
            info.unexpected_keys -= quantized.zero_biases
        check_loaded(info, is_bare=auto is AutoModel)
        _check_left_out(model, info.unexpected_keys)


def check_tensors(
    tensors: Mapping[str, Tensor], config: PretrainedConfig, dtype: torch.dtype, auto: Any
) -> None:
    """Raises UnsupportedModelError unless tensors, by their names in files, are those of the model
    that `auto` makes of its config: all of them, in their shapes, and no others."""
    model = _made(config, dtype, auto, len(tensors))
    info = _compared(model, _without_numbers(tensors), dtype)
    check_loaded(info)
    if info.unexpected_keys:
        raise UnsupportedModelError(f"it has no weights {listed(info.unexpected_keys)}")


@contextmanager
def _named(files: Sequence[str]) -> Iterator[None]:
    """Within, errors name the file, or the folder of several ones."""
    try:
        yield
    except UnsupportedModelError as error:
        place = files[0] if len(files) == 1 else Path(files[0]).parent
        raise UnsupportedModelError(f"{place}: {error}") from error


def _found(files: Sequence[str]) -> dict[str, Tensor]:
    """Tensors of the files' shapes and types, of whose numbers none is read."""
    found: dict[str, Tensor] = {}
    for file in files:
        found |= _header(Path(file))
    return found


def _without_numbers(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        for name, tensor in tensors.items()
    }


def _header(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        return {tensor.name: tensor.without_numbers() for tensor in read_safetensors(file)}
    try:
        mapped = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except RuntimeError:  # of the older format, which can't be mapped
        mapped = torch.load(file, map_location="meta", weights_only=True)
    return {
        name: tensor.to("meta") for name, tensor in mapped.items() if isinstance(tensor, Tensor)
    }


def _made(
    config: PretrainedConfig, dtype: torch.dtype, auto: Any, n_tensors: int
) -> PreTrainedModel:
    """The model without numbers."""
    config = plain_config(config)
    contexts = PreTrainedModel.get_init_context(dtype, False, False, False)
    with ExitStack() as stack, _bounded(PARAMETERS_PER_TENSOR * n_tensors + MORE_PARAMETERS):
        for context in contexts:
            stack.enter_context(context)
        model: PreTrainedModel = auto.from_config(config, dtype=dtype, trust_remote_code=False)
    return model


@contextmanager
def _bounded(most: int) -> Iterator[None]:
    """Raises UnsupportedModelError once this thread's modules have more than `most` parameters: a
    config may say a billion layers, each of which takes time and memory even without numbers."""
    thread, n = threading.get_ident(), 0

    def count(_module: nn.Module, _name: str, parameter: object) -> None:
        nonlocal n
        if parameter is None or threading.get_ident() != thread:
            return
        n += 1
        if n > most:
            raise UnsupportedModelError(
                f"its config says more layers or experts than its files have: over {most} weights"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _check_buffers(model: PreTrainedModel, file_bytes: int) -> None:
    """Raises UnsupportedModelError for what is computed at the start, is in no file, and is larger
    than these: a table of as many positions as the config says."""
    kept = model.state_dict().keys()
    sizes = {name: buffer.nbytes for name, buffer in model.named_buffers() if name not in kept}
    if sum(sizes.values()) > max(MAX_BUFFER_BYTES, file_bytes):
        name = max(sizes, key=lambda name: sizes[name])
        raise UnsupportedModelError(
            f"its config asks for a {name} of {[*model.get_buffer(name).shape]}, which is larger "
            "than all of its files"
        )


def _check_positions(model: PreTrainedModel) -> None:
    """Raises UnsupportedModelError for a config that asks for other positions than those of the
    table that its class has. transformers' BERTs do not read this field any more.
    """
    kind = getattr(model.config, POSITIONS, None)
    has_table = any(POSITION_TABLE in name for name, _ in model.named_parameters())
    if kind not in (None, "absolute") and has_table:
        raise UnsupportedModelError(
            f"{POSITIONS} of its config is {kind!r:.50}, and {type(model).__name__} has absolute "
            "positions alone"
        )


def _compared(model: PreTrainedModel, found: Mapping[str, Tensor], dtype: torch.dtype) -> Any:
    """transformers' report: names that are missing, not expected, or of other shapes."""
    how = LoadStateDictConfig(
        device_map=META,
        dtype=dtype,
        weight_mapping=get_model_conversion_mapping(model),
    )
    with _without_bars():
        info, _ = convert_and_load_state_dict_in_model(model, {**found}, how)
    model.mark_tied_weights_as_initialized(info)
    model.tie_weights(missing_keys=info.missing_keys, recompute_mapping=False)
    model._adjust_missing_and_unexpected_keys(info)
    return info


@contextmanager
def _without_bars() -> Iterator[None]:
    """No bar is shown, and no progress reported, of weights that are not read."""

    def plain(factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return args[0] if args else factory(*args, **options)

    before = bars.set_tqdm_hook(plain)
    try:
        yield
    finally:
        bars.set_tqdm_hook(before)


def check_loaded(info: Any, *, is_bare: bool = False) -> None:
    """Raises UnsupportedModelError unless every weight comes from the files in its own shape.
    `is_bare`: the model is its layers alone, and what pools behind them is of no use."""
    if mismatched := info.mismatched_keys:
        shapes = [f"{name} is {[*found]}, not {[*due]}" for name, found, due in mismatched]
        raise UnsupportedModelError(f"its weights are not as its config says: {listed(shapes)}")
    if extra := [name for name in info.unexpected_keys if QUANTIZATION_TENSOR.search(name)]:
        raise UnsupportedModelError(
            f"its weights are quantized in a way that its config does not say ({listed(extra)}): "
            "name the original"
        )
    for name, error in info.conversion_errors.items():
        # Below the cause transformers says in which of its operations it was.
        lines = [line for line in error.strip().splitlines() if not line.startswith("Error")]
        cause = lines[-1] if lines else error
        raise UnsupportedModelError(f"its weights are not as its config says: {name}: {cause}")
    missing = {name for name in info.missing_keys if not (is_bare and POOLER.match(name))}
    if missing:
        raise UnsupportedModelError(f"its files lack weights: {listed(missing)}")


def _check_left_out(model: PreTrainedModel, unexpected: Collection[str]) -> None:
    """Raises UnsupportedModelError for weights that the model's layers should compute with, and its
    class does not know. Draft layers, other heads and towers may stay out."""
    buffers = {name for name, _ in model.named_buffers()}
    names = {name for name in unexpected if not (DRAFT.search(name) or COMPUTED.search(name))}
    owners = {name: _owner(model, name) for name in names - buffers}
    served = [name for name, owner in owners.items() if _is_served(*owner, owners)]
    if served:
        raise UnsupportedModelError(
            f"its files have weights that {type(model).__name__} does not compute with: "
            f"{listed(served)}"
        )
    if owners:
        log.info("left out are weights of no served layer: %s", listed(owners))


def _owner(model: PreTrainedModel, name: str) -> tuple[nn.Module, str]:
    """The innermost module that a weight's name leads to, and the rest of the name. Files of a base
    model leave its prefix out."""
    prefix = f"{model.base_model_prefix}."
    walks = [
        _walk(model, name),
        _walk(model, prefix + name),
        _walk(model, name.removeprefix(prefix)),
    ]
    return min(walks, key=lambda walk: len(walk[1]))


def _walk(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    first, _, rest = name.partition(".")
    child = model._modules.get(first)
    return (model, name) if child is None or not rest else _walk(child, rest)


def _is_served(owner: nn.Module, rest: str, owners: Mapping[str, tuple[nn.Module, str]]) -> bool:
    if isinstance(owner, nn.ModuleList):  # a layer or an expert beyond those that the config says
        index = rest.partition(".")[0]
        others = (name for other, name in owners.values() if other is owner)
        of_it = [name for name in others if name.partition(".")[0] == index]
        return not any(DRAFT_PART.search(name) for name in of_it)
    if isinstance(owner, PreTrainedModel):
        return bool(ON_THE_WAY.match(rest)) and not BESIDE_IT.search(rest)
    return True


def listed(names: Collection[str]) -> str:
    n_more = len(names) - MAX_LISTED_WEIGHTS
    shown = ", ".join(sorted(names)[:MAX_LISTED_WEIGHTS])
    return f"{shown} and {n_more} more" if n_more > 0 else shown
