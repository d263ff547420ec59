"""A GGUF file of the hub comes to a replica's machine once, and no other file of its repository."""

import os
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from deployments.model.hub_download import local_path, with_local_files
from deployments.model.local_files import local_model
from deployments.model.settings import ModelSettings
from tests.router.downloads.hub import Hub, serving

FILES = {
    "README.md": b"",
    "mmproj-F16.gguf": b"p",
    "m-Q4_K_M.gguf": b"four",
    "big/m-Q8_0-00001-of-00002.gguf": b"eight",
    "big/m-Q8_0-00002-of-00002.gguf": b"more",
    "m-Q6_K-00001-of-00002.gguf": b"half",
}
MODELS = {
    "org/packed": FILES,
    "org/mixed": {"config.json": b"{}", "model.safetensors": b"x", "m-Q4_K_M.gguf": b"four"},
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serving(Hub(MODELS)) as hub:
        template = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        for name, value in {  # the library reads its environment when it is imported
            "ENDPOINT": hub.endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_CACHE": str(tmp_path),
            "HF_HUB_DISABLE_XET": True,
        }.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.gguf")}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("org/packed:q4_k_m", ["m-Q4_K_M.gguf"]),
        ("org/packed", ["m-Q4_K_M.gguf"]),
        ("org/packed:m-Q4_K_M.gguf", ["m-Q4_K_M.gguf"]),
        ("org/packed:Q8_0", ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]),
        ("org/mixed:Q4_K_M", ["m-Q4_K_M.gguf"]),
    ],
)
def test_the_chosen_file_is_brought_and_not_asked_for_again(
    hub: Hub, tmp_path: Path, model: str, names: list[str]
) -> None:
    assert not local_model(model).is_file()
    path = Path(local_path(model))
    assert path.name == names[0]
    assert path.read_bytes() in (b"four", b"eight")
    assert names_in(tmp_path / f"models--{model.partition(':')[0].replace('/', '--')}") == {*names}
    assert local_model(model) == path
    hub.models = {}
    hub.asked.clear()
    assert local_path(model) == str(path)
    assert (":" in model) != bool(hub.asked)  # without a tag the hub may have come to another one


def test_what_transformers_loads_stays_a_name(hub: Hub, tmp_path: Path) -> None:
    for model in ("org/mixed", "org/nowhere", str(tmp_path), str(tmp_path / "gone.gguf")):
        assert local_path(model) == model
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("org/packed:Q5_0", "org/packed has no GGUF model Q5_0; it has big/m-Q8_0-00001"),
        ("org/packed:Q6_K", "org/packed has no GGUF model Q6_K"),
        ("org/nowhere:Q4_0", "org/nowhere of the hub can't be read: RepositoryNotFoundError"),
    ],
)
def test_what_can_not_be_had_says_why(hub: Hub, model: str, why: str) -> None:
    with pytest.raises(OSError, match=why):
        local_path(model)


def test_without_a_hub_only_what_is_here_is_served(hub: Hub) -> None:
    path = local_path("org/packed:Q8_0")
    hub.models = {}
    with pytest.raises(OSError, match="org/packed of the hub can't be read"):
        local_path("org/packed:Q4_K_M")
    assert local_path("org/packed") == path


def test_settings_get_the_paths_and_are_checked_again(hub: Hub) -> None:
    settings = ModelSettings(name="m", path="org/packed", quantization="int8")
    with pytest.raises(ValueError, match="are quantized already"):
        with_local_files(settings)
    found = with_local_files(ModelSettings(name="m", path="org/packed:Q8_0"))
    assert os.path.isfile(found.path)
    assert found.draft_model is None
