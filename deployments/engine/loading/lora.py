"""Merges LoRA adapters in PEFT's format into a model's weights: a whole adapter or nothing.

An adapter that needs more than two matrices for each module is refused, and the error names what it
needs: a partial merge would answer as another model.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
MATRIX_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# Fields about the adapter's origin or training. They do not change what it computes.
IGNORED_FIELDS = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
    }
)
SUPPORTED_FIELDS = frozenset(
    {
        "alpha_pattern",
        "bias",
        "init_lora_weights",
        "lora_alpha",
        "peft_type",
        "r",
        "rank_pattern",
        "use_rslora",
    }
)
# Other initialisations change the base weights too. Their adapters need that change.
SUPPORTED_INITS = (True, False, None, "gaussian", "eva", "orthogonal")
PATTERN_FIELDS = {"r": "rank_pattern", "lora_alpha": "alpha_pattern"}


class AdapterError(ValueError):
    """The adapter can't be merged into this model."""


@dataclass(frozen=True, slots=True)
class LoraLayerWeights:
    """The matrices of one module. A merge adds scaling * lora_b @ lora_a to its weight.

    lora_a: [rank, in]; lora_b: [out, rank].
    """

    lora_a: torch.Tensor
    lora_b: torch.Tensor
    scaling: float


def merge_adapters(model: PreTrainedModel, adapters: Sequence[tuple[str, float]]) -> None:
    """Adds adapters to the weights of a model, each computed in float32 and rounded once.

    adapters: folder and scale of each. The scale multiplies the adapter's own scaling.

    Raises AdapterError for an adapter that can't be merged, before it has changed anything.
    """
    for folder, scale in adapters:
        adapter = read_adapter(Path(folder))
        linears = {name: _target(model, folder, name, adapter[name]) for name in adapter}
        for name, linear in linears.items():
            _merge(linear, adapter[name], scale)


@torch.no_grad()
def _merge(linear: torch.nn.Linear, lora: LoraLayerWeights, scale: float) -> None:
    weight = linear.weight  # [out, in]
    lora_a = lora.lora_a.to(weight.device, torch.float32)
    lora_b = lora.lora_b.to(weight.device, torch.float32)
    weight.copy_(weight.float().addmm_(lora_b, lora_a, alpha=scale * lora.scaling))


def _target(
    model: PreTrainedModel, folder: str, name: str, lora: LoraLayerWeights
) -> torch.nn.Linear:
    """The linear layer that these matrices are merged into."""
    try:
        module = model.get_submodule(name)
    except AttributeError as error:
        raise AdapterError(f"{folder}: {name}: the model has no such module") from error
    if type(module) is not torch.nn.Linear:
        raise AdapterError(f"{folder}: {name}: only linear layers are merged into")
    if module.weight is model.get_input_embeddings().weight:
        raise AdapterError(f"{folder}: {name}: its weights are the embedding's too")
    shape = (lora.lora_b.shape[0], lora.lora_a.shape[1])
    if module.weight.shape != shape:
        expected = tuple(module.weight.shape)
        raise AdapterError(f"{folder}: {name}: made for weights of {shape}, which are {expected}")
    return module


def read_adapter(folder: Path) -> dict[str, LoraLayerWeights]:
    """The matrices of an adapter, by the names of the modules that they are merged into.

    Raises AdapterError for files that can't be read or that ask for more than a merge.
    """
    config = _read_config(folder)
    _check_config(folder, config)
    try:
        tensors = load_file(folder / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} can't be read: {error}") from error
    matrices: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if (match := MATRIX_NAME.fullmatch(name)) is None or tensor.dim() != 2:
            raise AdapterError(f"{folder}: {name}: only lora_A and lora_B of layers are merged")
        matrices.setdefault(match[1], {})[match[2]] = tensor
    if not matrices:
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} is empty")
    return {name: _layer_weights(folder, name, found, config) for name, found in matrices.items()}


def _layer_weights(
    folder: Path, name: str, matrices: Mapping[str, torch.Tensor], config: Mapping[str, object]
) -> LoraLayerWeights:
    if matrices.keys() != {"A", "B"}:
        raise AdapterError(f"{folder}: {name}: one of lora_A and lora_B is missing")
    rank = _positive_number(folder, config, "r", name)
    alpha = _positive_number(folder, config, "lora_alpha", name)
    lora_a, lora_b = matrices["A"], matrices["B"]
    if not lora_a.shape[0] == lora_b.shape[1] == rank:
        ranks = f"{lora_a.shape[0]} and {lora_b.shape[1]}"
        raise AdapterError(
            f"{folder}: {name}: its matrices have ranks {ranks}, {CONFIG_FILE} {rank:g}"
        )
    scaling = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return LoraLayerWeights(lora_a, lora_b, scaling)


def _positive_number(folder: Path, config: Mapping[str, object], key: str, module: str) -> float:
    """The config's value for one module: of the first pattern that matches the end of the module's
    name, or else the value for all modules."""
    patterns = config.get(PATTERN_FIELDS[key]) or {}
    value = config.get(key)
    if not isinstance(patterns, dict):
        raise AdapterError(f"{folder}: {PATTERN_FIELDS[key]} of {CONFIG_FILE} must be an object")
    matching = (patterns[p] for p in patterns if re.fullmatch(rf"(.*\.)?({p})", module))
    value = next(matching, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise AdapterError(f"{folder}: {key} of {CONFIG_FILE} must be a number over 0")
    return float(value)


def _read_config(folder: Path) -> dict[str, object]:
    try:
        config = json.loads((folder / CONFIG_FILE).read_text())
    except (OSError, ValueError) as error:
        raise AdapterError(f"{folder}: {CONFIG_FILE} can't be read: {error}") from error
    if not isinstance(config, dict):
        raise AdapterError(f"{folder}: {CONFIG_FILE} must be an object")
    return config


def _check_config(folder: Path, config: Mapping[str, object]) -> None:
    """Raises AdapterError for a field that a merge can't honour."""
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"{folder}: peft_type {config.get('peft_type')} is not LORA")
    if config.get("bias", "none") != "none":
        raise AdapterError(f"{folder}: bias {config['bias']}: biases can't be merged")
    if (init := config.get("init_lora_weights")) not in SUPPORTED_INITS:
        raise AdapterError(f"{folder}: init_lora_weights {init} changes the base weights too")
    for key in sorted(config.keys() - IGNORED_FIELDS - SUPPORTED_FIELDS):
        if config[key]:
            raise AdapterError(f"{folder}: {key} is not supported")
