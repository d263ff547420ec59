"""Finds a model's files on this machine. Free of torch: routers look there, too."""

import os
from pathlib import Path

from deployments.engine.loading.gguf.names import (
    SUFFIX,
    chosen_files,
    is_gguf,
    lacks_parts,
    split_hub_name,
)
from deployments.engine.loading.weight_files import has_weights


def local_model(path: str) -> Path:
    """The folder or the GGUF file of a model. One of the hub is where the hub's library keeps it,
    and may not be there."""
    if os.path.isdir(path) or os.path.isfile(path):
        return Path(path)
    repository, choice = split_hub_name(path) or (path, "")
    if not choice and is_gguf(path):
        return Path(path)  # it is gone
    folder = snapshot(repository)
    cached = None if not choice and has_weights(folder) else cached_gguf(repository, choice)
    return cached or (folder / choice if choice else folder)


def cached_gguf(repository: str, choice: str) -> Path | None:
    """The first file of a GGUF model of the hub, if all of it is here."""
    folder = snapshot(repository)
    names = (str(path.relative_to(folder)) for path in folder.rglob(f"*{SUFFIX}"))
    files = chosen_files(names, choice)
    return folder / files[0] if files and not lacks_parts(files) else None


def snapshot(repository: str) -> Path:
    """The folder where huggingface_hub keeps it."""
    home = os.environ.get("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", str(Path(home) / "hub")))
    model = hub / f"models--{repository.replace('/', '--')}"
    main = model / "refs" / "main"
    return model / "snapshots" / (main.read_text().strip() if main.is_file() else "none")
