"""Turns model settings into a running engine, in the replica that will own it."""

import torch

from deployments.engine.engine import InferenceEngine
from deployments.engine.loader import load_model, load_tokenizer
from deployments.model.settings import ModelSettings

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def load_engine(settings: ModelSettings) -> InferenceEngine:
    """Raises OSError, ValueError or UnsupportedModelError when the model can't be served."""
    device = "cuda" if settings.num_gpus else "cpu"
    dtype = None if settings.dtype is None else DTYPES[settings.dtype]
    return InferenceEngine(
        load_model(settings.path, dtype=dtype, device=device),
        load_tokenizer(settings.path),
        name=settings.name,
        limits=settings.limits,
        dialect=settings.dialect,
    )
