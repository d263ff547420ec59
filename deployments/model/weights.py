"""A model's weights by its settings: all of them, or one rank's share. Imports torch."""

from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from deployments.contract.outputs import ModelTask
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, model_files
from deployments.engine.loading.model_tasks import task_of
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.parallel.sharding import load_shard
from deployments.model.settings import ModelSettings

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def load_weights(
    settings: ModelSettings,
    ranks: Ranks | None,
    on_weights_read: Callable[[PreTrainedModel], None] | None = None,
    on_copy_progress: Callable[[float], None] | None = None,
) -> LoadedModel:
    """All of them, or one rank's share, on their device; `load_model` says who hears what."""
    dtype = None if settings.dtype is None else DTYPES[settings.dtype]
    adapters = adapters_of(settings)
    _check_cache(settings)
    if ranks is not None:
        _check_shared(settings)
        return load_shard(
            settings.path,
            ranks,
            dtype=dtype,
            adapters=adapters,
            quantization=settings.quantization,
            on_weights_read=on_weights_read,
        )
    return load_model(
        settings.path,
        dtype=dtype,
        device=device_of(settings),
        adapters=adapters,
        quantization=settings.quantization,
        task=settings.task,
        pooling=settings.pooling,
        on_weights_read=on_weights_read,
        on_copy_progress=on_copy_progress,
    )


def _check_cache(settings: ModelSettings) -> None:
    """Raises UnsupportedModelError for scales of keys and values: pages of 8 bits have none."""
    if settings.limits.kv_dtype == "fp8" and model_files(settings.path).has_kv_scales():
        raise UnsupportedModelError(
            "kv_dtype: fp8: its files have scales of keys and values, which the cache does not "
            "apply: leave kv_dtype out"
        )


def _check_shared(settings: ModelSettings) -> None:
    """Raises UnsupportedModelError for what ranks can't share."""
    files = model_files(settings.path)
    task = settings.task or task_of(files.config(), files.sentence_files())
    if task is not ModelTask.GENERATE:
        raise UnsupportedModelError(f"ranks can't share a model that is there to {task}")


def adapters_of(settings: ModelSettings) -> list[tuple[str, float]]:
    return [(adapter.path, adapter.scale) for adapter in settings.adapters]


def device_of(settings: ModelSettings) -> str:
    return "cuda" if settings.num_gpus else "cpu"
