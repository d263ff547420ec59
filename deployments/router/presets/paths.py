"""Resolves names of models and adapters on this machine; raises ValueError where nothing is."""

import re
from pathlib import Path

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def model_path(model: str, base: Path) -> str:
    """A directory by its full path, because replicas run elsewhere; a hub id as it is."""
    path = base / Path(model).expanduser()
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise ValueError(f"{path} has no {CONFIG}: it is no model")
        return str(path.resolve())
    if path.is_file():
        raise ValueError(f"{path} is a file: a model is a directory with a {CONFIG}")
    if model.startswith((".", "/", "~")) or not HUB_ID.fullmatch(model):
        raise ValueError(f"there is no directory {path}{_hint(model)}")
    return model


def _hint(model: str) -> str:
    """Returns a hint for what other programs would have understood; "" for all else."""
    if "://" in model:
        return "; OWNER/NAME is how a model of the hub is named"
    if model[0] in "\"'":
        return "; a value has no quotes around it"
    if ":" in model:
        return "; a tag chooses among GGUF files, which can't be read"
    return ""


def adapter_path(adapter: str, base: Path) -> str:
    path = base / Path(adapter).expanduser()
    if not (path / ADAPTER_CONFIG).is_file():
        raise ValueError(f"{path} is no adapter: a directory with an {ADAPTER_CONFIG}")
    return str(path.resolve())


def model_folders(folder: Path) -> dict[str, Path]:
    """Models by the names of their folders, in the names' order."""
    if not folder.is_dir():
        raise ValueError(f"there is no directory {folder}")
    found = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
    shown = [path for path in found if not path.name.startswith(".")]
    return {printable_name(path.name): path.resolve() for path in shown}


def printable_name(name: str) -> str:
    """A name that requests, logs and metrics can carry."""
    if not name.isprintable():
        raise ValueError(f"{name!r} has marks in it that no request can carry")
    return name
