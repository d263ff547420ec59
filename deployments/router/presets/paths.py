"""Resolves names of models and adapters on this machine; raises ValueError where nothing is."""

import logging
import os
import re
from pathlib import Path

from deployments.engine.loading.gguf.names import (
    ONLY_PROJECTOR,
    PROJECTOR,
    SUFFIX,
    chosen_files,
    first_part,
    is_beside,
    is_gguf,
    model_name,
    models_of,
    split_hub_name,
)
from deployments.engine.loading.weight_files import has_weights

log = logging.getLogger("ray.serve")

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def model_path(model: str, base: Path) -> str:
    """A directory or a GGUF file by its full path, because replicas run elsewhere; a name of the
    hub as it is."""
    path = base / Path(model).expanduser()
    if path.is_dir():
        found = model_in(path)
        if found is None:
            raise ValueError(f"{path} has no {CONFIG} and no GGUF file: it is no model")
        return str(found)
    is_path = model.startswith((".", "/", "~"))
    if path.is_file() or (is_gguf(model) and (is_path or split_hub_name(model) is None)):
        return str(_gguf_file(path))
    if is_path or not (HUB_ID.fullmatch(model) or split_hub_name(model)):
        raise ValueError(f"there is no directory {path}{_hint(model)}")
    if PROJECTOR in model.partition(":")[2]:
        raise ValueError(f"{model} {ONLY_PROJECTOR}")
    return model


def _gguf_file(path: Path) -> Path:
    """The first part of a model. Links to files stay: the names of parts may be theirs alone."""
    if not is_gguf(path.name):
        raise ValueError(
            f"{path} is a file: a model is a directory with a {CONFIG}, or a file {SUFFIX}"
        )
    if PROJECTOR in path.name:
        raise ValueError(f"{path} {ONLY_PROJECTOR}")
    found = first_part(path)
    if not found.is_file():
        raise ValueError(f"there is no file {found}{_hint(str(path))}")
    return found.parent.resolve() / found.name


def _hint(model: str) -> str:
    """Returns a hint for what other programs would have understood; "" for all else."""
    if "://" in model:
        return "; OWNER/NAME is how a model of the hub is named"
    if model[0] in "\"'":
        return "; a value has no quotes around it"
    if ":" in model:
        return "; OWNER/NAME:TAG is how a GGUF file of the hub is named"
    return ""


def adapter_path(adapter: str, base: Path) -> str:
    path = base / Path(adapter).expanduser()
    if not (path / ADAPTER_CONFIG).is_file():
        raise ValueError(f"{path} is no adapter: a directory with an {ADAPTER_CONFIG}")
    return str(path.resolve())


def models_in(folder: Path) -> dict[str, Path]:
    """Models by the names of their folders, or of their GGUF files, in the names' order."""
    found = model_folders(folder)
    for path in _gguf_models(folder):
        name = printable_name(model_name(path.name))
        if other := found.get(name):
            raise ValueError(f"{other} and {path} are two models of the name {name}")
        found[name] = path
    return dict(sorted(found.items()))


def model_folders(folder: Path) -> dict[str, Path]:
    """Models by the names of their folders, in the names' order. In the place of a folder whose
    weights are a GGUF file stands that file."""
    if not folder.is_dir():
        raise ValueError(f"there is no directory {folder}")
    shown = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    found = ((path.name, model_in(path)) for path in shown if path.is_dir())
    return {printable_name(name): path for name, path in found if path is not None}


def model_in(folder: Path) -> Path | None:
    """A folder with weights of transformers, or the GGUF model in it; None: it has neither."""
    models = _gguf_models(folder)
    has_config = os.path.isfile(folder / CONFIG)  # False, too, where it must not be looked at
    if has_config and (not models or has_weights(folder)):
        return folder.resolve()
    chosen = chosen_files(path.name for path in models)
    if not chosen:
        return None
    if len(models) > 1:
        message = "of the %d models in %s %s is served: name the others by their paths"
        log.warning(message, len(models), folder, chosen[0])
    return folder.resolve() / chosen[0]


def _gguf_models(folder: Path) -> list[Path]:
    """The first file of each GGUF model right in a folder, by links if they are some."""
    found = (path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("."))
    names = [path.name for path in found if path.is_file()]
    for name in filter(is_beside, names):
        log.info("%s is no model, but lies beside one: it is left out", folder / name)
    return [first_part(folder.resolve() / files[0]) for files in models_of(names)]


def printable_name(name: str) -> str:
    """A name that requests, logs and metrics can carry."""
    if not name.isprintable():
        raise ValueError(f"{name!r} has marks in it that no request can carry")
    return name
