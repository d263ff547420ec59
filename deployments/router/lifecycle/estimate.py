"""Estimates what a model will need before it is loaded, and reads what the cluster has.

All of it but `cpu_needs` blocks, on files and on Ray: never to be called on an event loop.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from safetensors import SafetensorError, safe_open

from deployments.adapter_files import ADAPTED, EXPERTS
from deployments.engine.limits import CPU_KV_GIB
from deployments.engine.loading.configs.sizes import check_sizes
from deployments.engine.loading.gguf.description import describe
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.names import is_gguf
from deployments.engine.loading.weight_files import weight_files
from deployments.model.application import cpus_of_rank, node_cpus
from deployments.model.local_files import local_model
from deployments.model.settings import ModelSettings
from deployments.model.weights_form import CONFIG, CONFIG_ERRORS, QUANTIZED_BYTES
from deployments.router.lifecycle.capacity import GIB, Resources
from deployments.router.settings import CapacitySettings
from kv.layout import LayerShape, Layout, group_layers, page_numbers

# Bytes of a weight, by its type in files and by the dtype of the settings.
STORED_BYTES = {"F64": 8.0, "F32": 4.0, "BF16": 2.0, "F16": 2.0}
# The same of types that quantized weights have, which stay as they are.
CODE_BYTES = {"U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I32": 4, "I64": 8}
DTYPE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
UNQUANTIZED = ("embed", "lm_head")
# Where the config of the layers is within: of models that see or hear, and of draft heads.
CONFIGS_WITHIN = ("text_config", "transformer_layer_config")


def model_needs(settings: ModelSettings) -> Resources:
    """Estimates the resources that a model needs.

    With autoscaling, these are of the fewest replicas that serve: more come only if there is room.
    """
    replicas = _replicas(settings)
    size = replicas * (weight_bytes(settings) + _kv_bytes(settings) + _slot_bytes(settings))
    return Resources(
        cpus=cpu_needs(settings, node_cpus),
        gpus=replicas * settings.tensor_parallel * (settings.num_gpus or 0),
        cpu_bytes=0 if settings.num_gpus else size,
        gpu_bytes=size if settings.num_gpus else 0,
    )


def cpu_needs(settings: ModelSettings, nodes: Callable[[], Sequence[float]]) -> float:
    """`nodes` returns the cores of each node."""
    ranks = _replicas(settings) * settings.tensor_parallel
    return ranks * cpus_of_rank(settings, nodes)


def cluster_limits(settings: CapacitySettings) -> Resources:
    there = {} if settings.grows else ray.cluster_resources()
    return Resources(
        models=settings.models_max or math.inf,
        cpus=math.inf if settings.grows else there.get("CPU", 0.0),
        gpus=math.inf if settings.grows else there.get("GPU", 0.0),
        cpu_bytes=_bytes(settings.cpu_memory_gib),
        gpu_bytes=_bytes(settings.gpu_memory_gib),
    )


def _replicas(settings: ModelSettings) -> int:
    scaling = settings.autoscaling
    return settings.num_replicas if scaling is None else scaling.fewest


def weight_bytes(settings: ModelSettings) -> int:
    """Bytes of the weights as they will be loaded; 0 if their files are not on this disk."""
    total = _model_bytes(settings)
    if settings.draft_model is not None:
        total += _model_bytes(replace(settings, path=settings.draft_model, quantization="none"))
    return total


def _model_bytes(settings: ModelSettings) -> int:
    with suppress(OSError, ValueError):  # ValueError from a file that is no text
        path = local_model(settings.path)
        if is_gguf(path.name):
            return _gguf_bytes(path, settings)
        return sum(_loaded_bytes(file, settings) for file in weight_files(path))
    return 0


def _gguf_bytes(path: Path, settings: ModelSettings) -> int:
    """Quantized weights stay so. A broken file counts whole: then the load fails."""
    try:
        found = describe(path)
    except GGUFError:
        return path.stat().st_size
    n_plain = found.n_bytes - found.packed_bytes
    if (dtype := _dtype(settings)) is not None:
        n_plain = round(found.n_plain * DTYPE_BYTES[dtype])
    return found.packed_bytes + n_plain


def _loaded_bytes(file: Path, settings: ModelSettings) -> int:
    try:
        with safe_open(file, "np") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            return round(sum(_bytes_of(name, tensor, settings) for name, tensor in slices.items()))
    except SafetensorError:  # of another format, or broken: then the load fails
        return file.stat().st_size


def _bytes_of(name: str, tensor: Any, settings: ModelSettings) -> float:
    shape: list[int] = tensor.get_shape()
    numbers = math.prod(shape)
    if n_bytes := CODE_BYTES.get(tensor.get_dtype()):
        return numbers * n_bytes
    is_linear = len(shape) == 2 and not any(part in name for part in UNQUANTIZED)
    if settings.quantization != "none" and is_linear:
        return numbers * QUANTIZED_BYTES[settings.quantization]
    return numbers * _number_bytes(tensor, settings)


def _slot_bytes(settings: ModelSettings) -> int:
    """Estimates the bytes of one replica's adapter slots, as far as its files tell it."""
    limits, total = settings.limits, 0.0
    with suppress(OSError, ValueError, SafetensorError):
        if limits.max_loras:
            total = _bytes_of_all_ranks(local_model(settings.path), settings)
    return round(limits.max_loras * limits.max_lora_rank * total)


def _bytes_of_all_ranks(path: Path, settings: ModelSettings) -> float:
    """Returns the bytes of one rank of an adapter for each layer that takes some."""
    if is_gguf(path.name):
        return describe(path).n_adapted * DTYPE_BYTES[_dtype(settings) or "bfloat16"]
    total = 0.0
    for file in weight_files(path):
        with safe_open(file, "np") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            total += sum(_bytes_a_rank(name, tensor, settings) for name, tensor in slices.items())
    return total


def _bytes_a_rank(name: str, tensor: Any, settings: ModelSettings) -> float:
    """Returns the bytes of an adapter's rank: a row for all inputs and a column for all outputs."""
    *above, layer, kind = ["", *name.split(".")]
    if kind != "weight" or layer not in ADAPTED or EXPERTS in above:
        return 0.0
    shape: list[int] = tensor.get_shape()
    return sum(shape) * _number_bytes(tensor, settings)


def _number_bytes(tensor: Any, settings: ModelSettings) -> float:
    chosen = _dtype(settings)
    return DTYPE_BYTES[chosen] if chosen else STORED_BYTES.get(tensor.get_dtype(), 1.0)


def _dtype(settings: ModelSettings) -> str | None:
    """Returns the type that weights get; None: on a CPU it may be any."""
    return settings.dtype or ("bfloat16" if settings.num_gpus else None)


def _kv_bytes(settings: ModelSettings) -> int:
    """Estimates the bytes of one replica's KV cache."""
    limits = settings.limits
    if limits.n_pages is not None:
        return limits.n_pages * _page_bytes(settings)
    # On a GPU the pages take what is left of it: no more of them than there is can be counted on.
    left_to_it = 0.0 if settings.num_gpus else CPU_KV_GIB
    return int(settings.tensor_parallel * (limits.kv_gib or left_to_it) * GIB)


def _page_bytes(settings: ModelSettings) -> int:
    """Returns the bytes of one page on all ranks, or 0 without a config on this disk."""
    try:
        layout = _layout(settings.path, settings.tensor_parallel)
        if settings.draft_model is not None:
            layout += _layout(settings.draft_model, 1)
        if settings.spec_type is not None:  # its head has a layer as the model's last one is
            layout += layout[-1:]
        numbers = page_numbers(layout, group_layers(layout), settings.limits.page_size)
    except CONFIG_ERRORS:
        return 0
    if settings.limits.kv_dtype == "fp8":
        return numbers
    return numbers * (4 if settings.dtype == "float32" else 2)


def _layout(path: str, n_ranks: int) -> Layout:
    """Reads from a model's files what it stores of a token. Raises CONFIG_ERRORS."""
    found = local_model(path)
    if is_gguf(found.name):
        shapes = describe(found).layout  # every rank stores the latents of all heads
        return tuple(s._replace(kv_heads=n_ranks) if s.has_values_in_keys else s for s in shapes)
    config = json.loads((found / CONFIG).read_text())
    check_sizes(config)
    within = (config.get(name) for name in CONFIGS_WITHIN)
    text = next(filter(None, within), config)
    heads = int(text["num_attention_heads"])
    kv_heads = int(text.get("num_key_value_heads") or heads)
    head_dim = int(text.get("head_dim") or text["hidden_size"] // heads)
    value_dim: int | None = None
    if rank := int(text.get("kv_lora_rank") or 0):  # every rank stores the latents of all heads
        kv_heads, value_dim = n_ranks, rank
        head_dim = rank + int(text["qk_rope_head_dim"])
    shape = LayerShape(kv_heads, head_dim, value_dim=value_dim)
    return tuple(shape._replace(window=window) for window in _windows(text))


def _windows(text: Mapping[str, Any]) -> list[int | None]:
    """Returns the windows of the layers that store keys and values; None for full attention.

    Where the config does not say it layer by layer, all layers count as full attention.
    """
    types = text.get("layer_types") or ["full_attention"] * int(text["num_hidden_layers"])
    windows = {"full_attention": None, "sliding_attention": text.get("sliding_window")}
    return [windows[kind] for kind in types if kind in windows]


def _bytes(gib: float | None) -> float:
    return math.inf if gib is None else gib * GIB
