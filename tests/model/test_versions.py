"""A card's version is that of the weights too: a replica that only restarted keeps it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loader import load_model
from deployments.model.model_source import ModelSource
from deployments.model.settings import MergedAdapter, ModelSettings
from tests.adapters import lora_tensors, save_adapter
from tests.checkpoints import save_checkpoint

LIMITS = EngineLimits(n_pages=16, context_length=128)


@pytest.fixture
def tuned(tmp_path: Path) -> ModelSettings:
    """A model with an adapter."""
    path = str(save_checkpoint(tmp_path / "model"))
    made = lora_tensors(load_model(path, dtype=torch.float32).model)
    one = MergedAdapter(path=save_adapter(tmp_path / "adapter", made))
    return ModelSettings(name="m", path=path, dtype="float32", limits=LIMITS, adapters=(one,))


def version(settings: ModelSettings) -> str:
    source = ModelSource(settings, lambda *_: None)
    source.start().shutdown()
    return source.card.version


def folder(settings: ModelSettings) -> Path:
    return Path(settings.adapters[0].path)


def with_other_weights(settings: ModelSettings) -> ModelSettings:
    save_checkpoint(Path(settings.path), seed=1)
    return settings


def with_another_base(settings: ModelSettings) -> ModelSettings:
    file = Path(settings.path) / "config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"]["rope_theta"] = 500.0
    file.write_text(json.dumps(config))
    return settings


def with_a_retrained_adapter(settings: ModelSettings) -> ModelSettings:
    tensors = lora_tensors(load_model(settings.path, dtype=torch.float32).model, seed=2)
    save_adapter(folder(settings), tensors)
    return settings


def with_a_stronger_adapter(settings: ModelSettings) -> ModelSettings:
    return replace(settings, adapters=(replace(settings.adapters[0], scale=0.5),))


def with_no_adapter(settings: ModelSettings) -> ModelSettings:
    return replace(settings, adapters=())


def with_another_type(settings: ModelSettings) -> ModelSettings:
    return replace(settings, dtype="bfloat16")


def with_quantized_weights(settings: ModelSettings) -> ModelSettings:
    return replace(settings, quantization="int8")


def test_a_replica_that_restarts_has_the_same_version(tuned: ModelSettings) -> None:
    assert version(tuned) == version(tuned)


def test_a_replica_elsewhere_has_the_same_version(tuned: ModelSettings, tmp_path: Path) -> None:
    copy = save_checkpoint(tmp_path / "copy")
    moved = folder(tuned).rename(tmp_path / "moved")
    elsewhere = replace(tuned, path=str(copy), adapters=(MergedAdapter(path=str(moved)),))
    folder(tuned).symlink_to(moved)
    assert version(elsewhere) == version(tuned)


@pytest.mark.parametrize(
    "change",
    [
        with_other_weights,
        with_another_base,
        with_a_retrained_adapter,
        with_a_stronger_adapter,
        with_no_adapter,
        with_another_type,
        with_quantized_weights,
    ],
)
def test_whatever_changes_what_follows_changes_the_version(
    tuned: ModelSettings, change: Callable[[ModelSettings], ModelSettings]
) -> None:
    before = version(tuned)
    assert version(change(tuned)) != before
