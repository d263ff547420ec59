"""A GGUF file of the hub comes to a replica's machine once, and no other file of its repository. So
do weights of transformers, and it is told how far that is."""

import json
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import huggingface_hub.constants
import pytest

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.gguf.names import names_gguf
from deployments.model.hub_download import (
    bring_weights,
    lacks_weights,
    local_path,
    with_local_files,
)
from deployments.model.local_files import local_model
from deployments.model.model_source import ModelSource
from deployments.model.settings import ModelSettings
from tests.checkpoints import save_checkpoint
from tests.router.downloads.hub import Hub, serving

FILES = {
    "README.md": b"",
    "mmproj-F16.gguf": b"p",
    "m-Q4_K_M.gguf": b"four",
    "big/m-Q8_0-00001-of-00002.gguf": b"eight",
    "big/m-Q8_0-00002-of-00002.gguf": b"more",
    "m-Q6_K-00001-of-00002.gguf": b"half",
}
SHARDS = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
INDEX = json.dumps({"weight_map": dict(zip("ab", SHARDS, strict=True))}).encode()
CHUNK_BYTES = 1 << 14  # that the hub's library writes at once
LARGE = bytes(8 * CHUNK_BYTES)
MODELS = {
    "org/large": {"m-Q4_K_M.gguf": LARGE, "m-Q8_0.gguf": LARGE},
    "org/shards": {
        "config.json": b"{}",
        "model.safetensors.index.json": INDEX,
        SHARDS[0]: LARGE,
        SHARDS[1]: LARGE[1:] + b"1",  # what is equal comes once
        "consolidated.safetensors": b"a copy",
        "pytorch_model.bin": b"a copy",
    },
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
            "DOWNLOAD_CHUNK_SIZE": CHUNK_BYTES,
        }.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub


def unheard(stage: str, share: float) -> None:
    pass


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
    path = Path(local_path(model, unheard))
    assert path.name == names[0]
    assert path.read_bytes() in (b"four", b"eight")
    assert names_in(tmp_path / f"models--{model.partition(':')[0].replace('/', '--')}") == {*names}
    assert local_model(model) == path
    hub.models = {}
    hub.asked.clear()
    assert local_path(model, unheard) == str(path)
    assert (":" in model) != bool(hub.asked)  # without a tag the hub may have come to another one


def test_what_transformers_loads_stays_a_name(hub: Hub, tmp_path: Path) -> None:
    for model in ("org/mixed", "org/nowhere", str(tmp_path), str(tmp_path / "gone.gguf")):
        assert local_path(model, unheard) == model
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
        local_path(model, unheard)


def test_without_a_hub_only_what_is_here_is_served(hub: Hub) -> None:
    path = local_path("org/packed:Q8_0", unheard)
    hub.models = {}
    with pytest.raises(OSError, match="org/packed of the hub can't be read"):
        local_path("org/packed:Q4_K_M", unheard)
    assert local_path("org/packed", unheard) == path


def test_settings_get_the_paths_and_are_checked_again(hub: Hub) -> None:
    settings = ModelSettings(name="m", path="org/packed", quantization="int8")
    with pytest.raises(ValueError, match="are quantized already"):
        with_local_files(settings, unheard)
    found = with_local_files(ModelSettings(name="m", path="org/packed:Q8_0"), unheard)
    assert os.path.isfile(found.path)
    assert found.draft_model is None


@pytest.mark.parametrize(
    ("model", "halting", "share"),
    [("org/large:Q4_K_M", "m-Q4_K_M.gguf", 0.5), ("org/shards", SHARDS[1], 0.75)],
)
def test_it_is_told_how_far_a_download_is(
    hub: Hub, tmp_path: Path, model: str, halting: str, share: float
) -> None:
    """The hub stops in the middle of a file until that was heard."""
    hub.halting, told = halting, list[float]()
    left = tmp_path / f"models--{model.partition(':')[0].replace('/', '--')}" / "blobs"
    left.mkdir(parents=True)
    (left / "other.incomplete").write_bytes(LARGE)  # of a download that ended before

    def hear(stage: str, value: float) -> None:
        assert stage == "download"
        told.append(value)
        if value >= share - 0.01 or len(told) > 99:
            hub.go_on.set()

    if names_gguf(model):
        local_path(model, hear)
    else:
        bring_weights(model, hear)
    assert told[0] == 0
    assert any(abs(value - share) < 0.01 for value in told)
    assert told[-1] == 1


def test_weights_that_transformers_reads_are_brought_once(hub: Hub, tmp_path: Path) -> None:
    assert lacks_weights("org/shards")
    bring_weights("org/shards", unheard)
    found = {path.name for path in tmp_path.rglob("snapshots/*/*")}
    assert found == {"model.safetensors.index.json", *SHARDS}
    assert not lacks_weights("org/shards")
    next(tmp_path.rglob(f"snapshots/*/{SHARDS[0]}")).unlink()
    assert lacks_weights("org/shards")
    assert not lacks_weights(str(tmp_path))


def test_where_the_hub_is_silent_transformers_says_why(hub: Hub, tmp_path: Path) -> None:
    bring_weights("org/nowhere", unheard)
    assert not [*tmp_path.iterdir()]
    assert lacks_weights("org/nowhere")


class Lost(dict[str, bytes]):
    """Files that are listed, and can't be had."""

    def get(self, *_: object) -> None:  # type: ignore[override]
        return None


def test_what_ends_in_the_middle_is_not_told_as_whole(hub: Hub) -> None:
    told = list[float]()
    hub.models = {"org/large": Lost(MODELS["org/large"])}
    with pytest.raises(OSError, match=r"m-Q4_K_M\.gguf of org/large can't be had"):
        local_path("org/large:Q4_K_M", lambda _, share: told.append(share))
    assert 1 not in told


def test_a_replica_tells_of_the_download_before_it_reads_weights(hub: Hub, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "original")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    fields = json.loads(files["config.json"]) | {"quantization_config": {"quant_method": "hqq"}}
    unknown = files | {"config.json": json.dumps(fields).encode()}
    hub.models = {"org/served": files, "org/unknown": unknown}
    told = list[str]()
    source = ModelSource(
        ModelSettings(name="m", path="org/served"), lambda *said: told.append(said[0])
    )
    source.start().shutdown()
    stages = [stage for stage, _ in groupby(told)]
    assert stages == ["download", "weights", "engine"]
    with pytest.raises(UnsupportedModelError, match=r"quantized \(hqq\)"):
        ModelSource(ModelSettings(name="m", path="org/unknown"), unheard).start()
    asked = [path for path in hub.asked if path.startswith("org/unknown/")]
    assert asked
    assert not any(path.endswith(".safetensors") for path in asked)
