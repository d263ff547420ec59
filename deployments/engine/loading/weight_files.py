"""Finds the files that transformers reads a model's weights from. Free of torch, for routers."""

import json
import re
from collections.abc import Collection
from pathlib import Path

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")  # each may be sharded, with an index
PATTERNS = ("model*.safetensors", "*.safetensors", "*.bin")  # in order of preference


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's folder that transformers chooses; empty if there are none.

    Other files with the same weights may lie beside them, as in Mistral's repositories.
    Raises OSError or ValueError for an index that can't be read.
    """
    for name in SINGLE_FILES:
        if (folder / name).is_file():
            return [folder / name]
        if (index := folder / f"{name}.index.json").is_file():
            return sorted({folder / shard for shard in _shard_names(index)})
    matches = (sorted(folder.glob(pattern)) for pattern in PATTERNS)
    return next((files for files in matches if files), [])


def weights_among(names: Collection[str]) -> list[str]:
    """The files of a repository that transformers reads weights from, and their index; empty if
    they have other names than usual."""
    for name in SINGLE_FILES:
        if name in names:
            return [name]
        if (index := f"{name}.index.json") in names:
            stem, suffix = name.rsplit(".", 1)
            shard = re.compile(rf"{stem}-\d+-of-\d+\.{suffix}")
            return [index, *sorted(filter(shard.fullmatch, names))]
    return []


def has_weights(folder: Path) -> bool:
    """Whether there is any file that transformers might read weights from."""
    return any(any(folder.glob(pattern)) for pattern in PATTERNS)


def _shard_names(index: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads(index.read_text())["weight_map"].values()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{index} is no index of weights") from error
