"""A model's weights by its settings: all of them, or one rank's share. Imports torch."""

from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from deployments.engine.loading.loader import load_model
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.parallel.sharding import load_shard
from deployments.model.settings import ModelSettings

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def load_weights(
    settings: ModelSettings,
    ranks: Ranks | None,
    on_weights_read: Callable[[PreTrainedModel], None] | None = None,
    on_copy_progress: Callable[[float], None] | None = None,
) -> PreTrainedModel:
    """All of them, or one rank's share, on their device; `load_model` says who hears what."""
    dtype = None if settings.dtype is None else DTYPES[settings.dtype]
    adapters = adapters_of(settings)
    if ranks is not None:
        return load_shard(
            settings.path, ranks, dtype=dtype, adapters=adapters, on_weights_read=on_weights_read
        )
    return load_model(
        settings.path,
        dtype=dtype,
        device=device_of(settings),
        adapters=adapters,
        quantization=settings.quantization,
        on_weights_read=on_weights_read,
        on_copy_progress=on_copy_progress,
    )


def adapters_of(settings: ModelSettings) -> list[tuple[str, float]]:
    return [(adapter.path, adapter.scale) for adapter in settings.adapters]


def device_of(settings: ModelSettings) -> str:
    return "cuda" if settings.num_gpus else "cpu"
