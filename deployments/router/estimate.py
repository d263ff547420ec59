"""What a model will take, estimated before it is loaded, and what the cluster has.

All of it blocks, on files and on Ray: never to be called on an event loop.
"""

import json
import math
import os
from pathlib import Path

import ray

from deployments.engine.limits import CPU_KV_GIB
from deployments.model.application import rank_resources
from deployments.model.settings import ModelSettings
from deployments.router.capacity import GIB, Resources
from deployments.router.model_paths import CONFIG
from deployments.router.settings import CapacitySettings

WEIGHTS = ("*.safetensors", "*.bin")  # the first that there are any of
# What another config than those of the engine's models can raise when it is read as one.
NO_CONFIG = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


def model_needs(settings: ModelSettings) -> Resources:
    """With autoscaling, of the fewest replicas that serve: more come only where there is room."""
    replicas = settings.num_replicas
    if settings.autoscaling is not None:
        replicas = settings.autoscaling.fewest
    rank = rank_resources(settings)
    ranks = replicas * settings.tensor_parallel
    size = replicas * (weight_bytes(settings.path) + _kv_bytes(settings))
    return Resources(
        cpus=ranks * rank["num_cpus"],
        gpus=ranks * rank["num_gpus"],
        cpu_bytes=0 if settings.num_gpus else size,
        gpu_bytes=size if settings.num_gpus else 0,
    )


def limits(settings: CapacitySettings) -> Resources:
    there = {} if settings.grows else ray.cluster_resources()
    return Resources(
        models=settings.models_max or math.inf,
        cpus=math.inf if settings.grows else there.get("CPU", 0.0),
        gpus=math.inf if settings.grows else there.get("GPU", 0.0),
        cpu_bytes=_bytes(settings.cpu_memory_gib),
        gpu_bytes=_bytes(settings.gpu_memory_gib),
    )


def weight_bytes(path: str) -> int:
    """Of the files on this disk; 0 for what can't be read, as a hub id never fetched to it."""
    try:
        folder = _folder(path)
        sizes = [sum(file.stat().st_size for file in folder.glob(kind)) for kind in WEIGHTS]
    except (OSError, ValueError):  # the latter from a file that is no text
        return 0
    return next((size for size in sizes if size), 0)


def _folder(path: str) -> Path:
    return Path(path) if os.path.isdir(path) else _snapshot(path)


def _snapshot(hub_id: str) -> Path:
    """Where the hub's own library keeps it."""
    home = os.environ.get("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", str(Path(home) / "hub")))
    model = hub / f"models--{hub_id.replace('/', '--')}"
    main = model / "refs" / "main"
    return model / "snapshots" / (main.read_text().strip() if main.is_file() else "none")


def _kv_bytes(settings: ModelSettings) -> int:
    """Of one replica."""
    limits = settings.limits
    if limits.n_pages is not None:
        return limits.n_pages * limits.page_size * _token_bytes(settings)
    # On a GPU the pages take what is left of it: no more of them than there is can be counted on.
    left_to_it = 0.0 if settings.num_gpus else CPU_KV_GIB
    return int(settings.tensor_parallel * (limits.kv_gib or left_to_it) * GIB)


def _token_bytes(settings: ModelSettings) -> int:
    """Keys and values of one token, on all ranks together; 0 where no config on this disk says."""
    try:
        config = json.loads((_folder(settings.path) / CONFIG).read_text())
        text = config.get("text_config") or config
        heads = int(text["num_attention_heads"])
        kv_heads = int(text.get("num_key_value_heads") or heads)
        head_dim = int(text.get("head_dim") or text["hidden_size"] // heads)
        numbers = 2 * int(text["num_hidden_layers"]) * kv_heads * head_dim
    except NO_CONFIG:
        return 0
    if settings.limits.kv_dtype == "fp8":
        return numbers
    return numbers * (4 if settings.dtype == "float32" else 2)


def _bytes(gib: float | None) -> float:
    return math.inf if gib is None else gib * GIB
