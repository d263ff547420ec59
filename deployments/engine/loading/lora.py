"""Merges LoRA adapters in PEFT's form into a model's weights: all of an adapter or nothing.

What an adapter asks for beside its two matrices a module is refused by name: a merge that leaves
something out would answer as another model.
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

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MATRIX = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# What says where an adapter came from, or how it was trained, and nothing of what it computes.
OF_NO_EFFECT = frozenset(
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
READ_HERE = frozenset(
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
# Others change the base weights as well, and their adapter is of no use without that change.
STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
PATTERNS = {"r": "rank_pattern", "lora_alpha": "alpha_pattern"}


class AdapterError(ValueError):
    """The adapter can't be merged into this model."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The matrices of one module: its weight W grows by factor * up @ down.

    down: [rank, in]; up: [out, rank].
    """

    down: torch.Tensor
    up: torch.Tensor
    factor: float


def merge_adapters(model: PreTrainedModel, adapters: Sequence[tuple[str, float]]) -> None:
    """Adds adapters, each a folder and a scale, to the weights, computed in float32.

    Raises AdapterError, before that adapter has changed anything.
    """
    for folder, scale in adapters:
        pairs = read_adapter(Path(folder))
        linears = {module: _linear(model, folder, module, pairs[module]) for module in pairs}
        for module, linear in linears.items():
            _merge(linear, pairs[module], scale)


@torch.no_grad()
def _merge(linear: torch.nn.Linear, pair: Pair, scale: float) -> None:
    weight = linear.weight  # [out, in]
    down, up = (one.to(weight.device, torch.float32) for one in (pair.down, pair.up))
    weight.copy_(weight.float().addmm_(up, down, alpha=scale * pair.factor))


def _linear(model: PreTrainedModel, folder: str, name: str, pair: Pair) -> torch.nn.Linear:
    try:
        module = model.get_submodule(name)
    except AttributeError as error:
        raise AdapterError(f"{folder}: {name}: the model has no such module") from error
    if type(module) is not torch.nn.Linear:
        raise AdapterError(f"{folder}: {name}: only linear layers are merged into")
    if module.weight is model.get_input_embeddings().weight:
        raise AdapterError(f"{folder}: {name}: its weights are the embedding's too")
    shape = (pair.up.shape[0], pair.down.shape[1])
    if module.weight.shape != shape:
        expected = tuple(module.weight.shape)
        raise AdapterError(f"{folder}: {name}: made for weights of {shape}, which are {expected}")
    return module


def read_adapter(folder: Path) -> dict[str, Pair]:
    """By the names of modules. Raises AdapterError."""
    config = _config(folder)
    _check(folder, config)
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"{folder}: {WEIGHTS} can't be read: {error}") from error
    matrices: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if (match := MATRIX.fullmatch(name)) is None or tensor.dim() != 2:
            raise AdapterError(f"{folder}: {name}: only lora_A and lora_B of layers are merged")
        matrices.setdefault(match[1], {})[match[2]] = tensor
    if not matrices:
        raise AdapterError(f"{folder}: {WEIGHTS} is empty")
    return {name: _pair(folder, name, found, config) for name, found in matrices.items()}


def _pair(
    folder: Path, name: str, matrices: Mapping[str, torch.Tensor], config: Mapping[str, object]
) -> Pair:
    if matrices.keys() != {"A", "B"}:
        raise AdapterError(f"{folder}: {name}: one of lora_A and lora_B is missing")
    rank = _number(folder, config, "r", name)
    alpha = _number(folder, config, "lora_alpha", name)
    down, up = matrices["A"], matrices["B"]
    if not down.shape[0] == up.shape[1] == rank:
        ranks = f"{down.shape[0]} and {up.shape[1]}"
        raise AdapterError(f"{folder}: {name}: its matrices have ranks {ranks}, {CONFIG} {rank:g}")
    return Pair(down, up, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _number(folder: Path, config: Mapping[str, object], key: str, module: str) -> float:
    """Of one module: what the first pattern that ends its name says, or else what holds for all."""
    patterns = config.get(PATTERNS[key]) or {}
    value = config.get(key)
    if not isinstance(patterns, dict):
        raise AdapterError(f"{folder}: {PATTERNS[key]} of {CONFIG} must be an object")
    own = (patterns[p] for p in patterns if re.fullmatch(rf"(.*\.)?({p})", module))
    value = next(own, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise AdapterError(f"{folder}: {key} of {CONFIG} must be a number over 0")
    return float(value)


def _config(folder: Path) -> dict[str, object]:
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise AdapterError(f"{folder}: {CONFIG} can't be read: {error}") from error
    if not isinstance(config, dict):
        raise AdapterError(f"{folder}: {CONFIG} must be an object")
    return config


def _check(folder: Path, config: Mapping[str, object]) -> None:
    """That nothing is asked for which a merge would leave out."""
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"{folder}: peft_type {config.get('peft_type')} is not LORA")
    if config.get("bias", "none") != "none":
        raise AdapterError(f"{folder}: bias {config['bias']}: biases can't be merged")
    if (start := config.get("init_lora_weights")) not in STARTS:
        raise AdapterError(f"{folder}: init_lora_weights {start} changes the base weights too")
    for key in sorted(config.keys() - OF_NO_EFFECT - READ_HERE):
        if config[key]:
            raise AdapterError(f"{folder}: {key} is not supported")
