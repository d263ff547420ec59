"""Scales of keys and values in a model's files are refused where the cache would round without."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.model.settings import ModelSettings
from deployments.model.weights import load_weights
from tests.engine.loading.formats.checkpoints import llama, save_quantized
from tests.engine.loading.formats.writers import fp8


def scaled(folder: Path, scale: float) -> str:
    path, _ = save_quantized(folder, llama(), fp8())
    file = Path(path) / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.self_attn.k_proj.k_scale"] = torch.tensor(scale)
    save_file(tensors, file, metadata={"format": "pt"})
    return path


def test_a_cache_of_8_bits_is_refused_with_scales_that_it_does_not_apply(tmp_path: Path) -> None:
    settings = ModelSettings(
        name="m", path=scaled(tmp_path, 0.5), limits=EngineLimits(kv_dtype="fp8")
    )
    with pytest.raises(UnsupportedModelError, match=r"kv_dtype: fp8: .* leave kv_dtype out"):
        load_weights(settings, None)


@pytest.mark.parametrize(("scale", "kv_dtype"), [(1.0, "fp8"), (0.5, "auto")])
def test_others_are_loaded(scale: float, kv_dtype: str, tmp_path: Path) -> None:
    limits = EngineLimits(kv_dtype=kv_dtype)  # type: ignore[arg-type]
    settings = ModelSettings(name="m", path=scaled(tmp_path, scale), limits=limits)
    assert load_weights(settings, None).n_bytes > 0
