"""A GGUF file that can't be served fails its load, with its name and the reason."""

from pathlib import Path

import pytest

from deployments.model.model_source import ModelSource
from deployments.model.settings import ModelSettings
from tests.engine.loading.gguf.by_hand import STRING, U32, entry, gguf, key, text, u32

NAMED = key("general.architecture", STRING, text("rwkv6"))
PART = [key("split.no", 4, u32(0)), key("split.count", U32, u32(2))]


def start(path: Path) -> None:
    ModelSource(ModelSettings(name="m", path=str(path)), lambda *_: None).start()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is no GGUF file"),
        (b"GGUF" + bytes(40), "GGUF"),
        (gguf([NAMED], [entry("a")])[:-1020], "past the end|ends at byte"),
        (gguf([NAMED], [entry("a")]), "tokenizer.ggml.model|architecture 'rwkv6' is not supported"),
    ],
)
def test_a_file_that_is_broken_or_not_supported_is_named(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=reason) as refused:
        start(tmp_path / "m.gguf")
    assert str(tmp_path / "m.gguf") in str(refused.value)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError), match=str(tmp_path / "m.gguf")):
        start(tmp_path / "m.gguf")


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    split = [*PART, key("split.tensors.count", 5, u32(2)), NAMED]
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(gguf(split, [entry("a")]))
    with pytest.raises(ValueError, match=r"m-00002-of-00002\.gguf: there is no such file"):
        start(tmp_path / "m-00001-of-00002.gguf")
