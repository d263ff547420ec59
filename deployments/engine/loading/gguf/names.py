"""Names of GGUF files, on this disk and in repositories of the hub. Free of torch, for routers.

A tag finds the file that llama.cpp finds by it. Source: common/download.cpp of llama.cpp.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

SUFFIX = ".gguf"
PART_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)  # of a split model
PROJECTOR = "mmproj"
# Marks of files beside models: projectors of pictures, statistics, and models that draft.
BESIDE = (PROJECTOR, "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
DEFAULT_TAGS = ("Q4_K_M", "Q8_0")  # of a repository without a tag, the first that it has
MAX_LISTED_MODELS = 8  # in an error
# A tag, or the name of a file, which may lie in folders.
CHOICE = r"[A-Za-z0-9_][\w.+-]*(?:/[A-Za-z0-9_][\w.+-]*)*"
HUB_NAME = re.compile(rf"([\w.-]+/[\w.-]+):({CHOICE})", re.ASCII)
ONLY_PROJECTOR = (
    "has the projector of pictures or sounds, which is not read: for these name the original "
    "model, a directory with a config.json or a hub id"
)


def is_gguf(path: str) -> bool:
    """Whether a model's path names a GGUF file."""
    return path.endswith(SUFFIX)


def split_hub_name(model: str) -> tuple[str, str] | None:
    """The repository and the choice in OWNER/NAME:TAG or OWNER/NAME:FILE; None: it is neither."""
    found = HUB_NAME.fullmatch(model)
    return None if found is None else (found[1], found[2])


def names_gguf(model: str) -> bool:
    """Whether a model's path or name is that of a GGUF file, here or in the hub."""
    return is_gguf(model) or split_hub_name(model) is not None


def model_name(file: str) -> str:
    """A file's name without its suffix, and without the number of its part."""
    part = PART_NAME.fullmatch(file)
    return file.removesuffix(SUFFIX) if part is None else part[1]


def first_part(path: Path) -> Path:
    """The first file of a split model; another file is one by itself."""
    part = PART_NAME.fullmatch(path.name)
    return path if part is None else path.with_name(f"{part[1]}-00001-of-{part[3]}{SUFFIX}")


def models_of(names: Iterable[str]) -> list[list[str]]:
    """The models among some files, each with those of its parts that there are, in order. What lies
    beside models is left out."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(names):
        if not is_gguf(name) or is_beside(name):
            continue
        part = PART_NAME.fullmatch(name)
        groups.setdefault((name, "") if part is None else (part[1], part[3]), []).append(name)
    return list(groups.values())


def is_beside(name: str) -> bool:
    """Whether a file belongs to a model, and is none."""
    return any(mark in name.rpartition("/")[2] for mark in BESIDE)


def lacks_parts(files: Sequence[str]) -> bool:
    """Whether these files of a model are not all that it has."""
    part = PART_NAME.fullmatch(files[0])
    return part is not None and len(files) != int(part[3])


def chosen_files(names: Iterable[str], choice: str = "") -> list[str]:
    """The files of the model that a tag or the name of a file chooses; empty if there is none.

    choice: without any, the first of DEFAULT_TAGS that there is, else the first model.
    """
    models = models_of(names)
    if is_gguf(choice.lower()):
        return next((m for m in models if choice.lower() in map(str.lower, m)), [])
    for tag in (choice,) if choice else DEFAULT_TAGS:
        marked = re.compile(f"{re.escape(tag)}[.-]", re.IGNORECASE)
        if found := next((model for model in models if marked.search(model[0])), None):
            return found
    return [] if choice or not models else models[0]


def listed_models(names: Iterable[str]) -> str:
    """The end of an error's sentence: which models there are instead."""
    models = [files[0] for files in models_of(names)]
    shown, n_more = ", ".join(models[:MAX_LISTED_MODELS]), len(models) - MAX_LISTED_MODELS
    return f"; it has {shown}{f' and {n_more} more' if n_more > 0 else ''}" if models else ""
