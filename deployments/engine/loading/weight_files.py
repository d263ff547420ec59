"""Which files of a folder a model's weights are read from. Free of torch: routers read it too."""

import json
from pathlib import Path

WHOLE = ("model.safetensors", "pytorch_model.bin")  # or each with an index of its parts
KINDS = ("model*.safetensors", "*.safetensors", "*.bin")  # the first that there are any of


def weight_files(folder: Path) -> list[Path]:
    """As transformers chooses them; a repository may have others beside them, as Mistral's do.

    Raises OSError or ValueError for an index that can't be read.
    """
    for name in WHOLE:
        if (folder / name).is_file():
            return [folder / name]
        if (index := folder / f"{name}.index.json").is_file():
            return sorted({folder / part for part in _indexed(index)})
    found = (sorted(folder.glob(kind)) for kind in KINDS)
    return next((files for files in found if files), [])


def _indexed(index: Path) -> list[str]:
    try:
        return [str(name) for name in json.loads(index.read_text())["weight_map"].values()]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is no index of weights") from error
