"""A GGUF model as the router's argument: a file, any part of it, or a name of the hub."""

from pathlib import Path

import pytest

from deployments.router.settings import Preset
from serve_app.router_arguments import RouterArguments


def models(**said: object) -> list[Preset]:
    return RouterArguments.model_validate(said).checked_sources().read()


def test_a_gguf_model_is_known_by_its_file_or_its_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m-Q8_0-00001-of-00002.gguf").touch()
    (tmp_path / "m-Q8_0-00002-of-00002.gguf").touch()
    monkeypatch.chdir(tmp_path)
    settings = models(model="m-Q8_0-00002-of-00002.gguf")[0].settings
    assert settings.name == "m-Q8_0"
    assert settings.path == str(tmp_path / "m-Q8_0-00001-of-00002.gguf")
    settings = models(model="Qwen/Qwen3-0.6B-GGUF:Q8_0")[0].settings
    assert settings.name == settings.path == "Qwen/Qwen3-0.6B-GGUF:Q8_0"
    assert settings.application == "model-Qwen_Qwen3-0.6B-GGUF_Q8_0"


def test_a_folder_of_gguf_models_is_served(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x-Q8_0.gguf").touch()
    found = {
        preset.settings.name: preset.settings.path for preset in models(models_dir=str(tmp_path))
    }
    assert found == {"a": str(tmp_path / "a.gguf"), "b": str(tmp_path / "b" / "x-Q8_0.gguf")}
    (only,) = models(model=str(tmp_path / "b"))
    assert (only.settings.name, only.settings.path) == ("b", found["b"])
