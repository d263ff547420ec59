"""A process that downloads one model of the hub: weights as safetensors, and what is text; or a
GGUF model, and nothing beside it.

Its standard output has JSON objects, one a line: `total` bytes, `done` bytes, or an `error`. It
ends when its standard input does, so that it does not outlive the router. HF_ENDPOINT and HF_TOKEN
are the operator's.
"""

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from deployments.engine.loading.gguf.names import (
    chosen_files,
    lacks_parts,
    listed_models,
    models_of,
    split_hub_name,
)

TELL_INTERVAL_S = 0.5
DISK_RESERVE_BYTES = 1 << 30
MAX_FILES = 4096
CONNECTIONS = 4
# None of these is code, or can hold any.
WANTED = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(safetensors|json|jinja|model)|(vocab|merges)\.txt"
)
WANTED_GGUF = re.compile(r"[A-Za-z0-9_][\w.+-]*(/[A-Za-z0-9_][\w.+-]*)*", re.ASCII)
CONFIG = "config.json"


class FetchError(Exception):
    """The model can't be downloaded; the message says why."""


def wanted_files(sizes: Mapping[str, int], choice: str = "") -> dict[str, int]:
    """Returns those files of a repository that are downloaded. Raises FetchError.

    choice: the tag or the name of a GGUF file. Without one a repository that has GGUF files and no
        other weights gives what it gives to llama.cpp.
    """
    names = [name for name in sizes if WANTED_GGUF.fullmatch(name)]
    has_others = any(name.endswith(".safetensors") for name in names)
    if choice or (models_of(names) and not has_others):
        files = chosen_files(names, choice)
        if not files or lacks_parts(files):
            raise FetchError(f"it has no GGUF model {choice}{listed_models(names)}")
        return {name: sizes[name] for name in files}
    return _wanted_of_folder(sizes)


def _wanted_of_folder(sizes: Mapping[str, int]) -> dict[str, int]:
    found = {
        name: size
        for name, size in sizes.items()
        if WANTED.fullmatch(name) and not name.endswith(".bin.index.json")
    }
    weights = {name for name in found if name.endswith(".safetensors")}
    if any(name.startswith("model") for name in weights):  # the others are copies
        for name in weights:
            if name.startswith("consolidated"):
                del found[name]
    if CONFIG not in found:
        raise FetchError(f"it has no {CONFIG}")
    if not weights:
        raise FetchError("it has no weights as safetensors")
    if len(found) > MAX_FILES:
        raise FetchError(f"it has more than {MAX_FILES} files")
    return found


def fetch(model: str, revision: str | None, folder: Path) -> None:
    """Raises FetchError. The folder holds all files then, and nothing else: those that lie in
    folders of the repository come out of these."""
    # Here: the router reads what stands above, and needs no client of the hub.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, choice = split_hub_name(model) or (model, "")
    try:
        found = HfApi().model_info(repository, revision=revision, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
        files = wanted_files(sizes, choice)
        total = sum(files.values())
        _check_disk(total, folder)
        _tell(total=total)
        threading.Thread(target=_watch, args=(folder, total), daemon=True).start()
        snapshot_download(
            repository,
            revision=found.sha,  # a branch may move meanwhile
            local_dir=folder,
            allow_patterns=list(files),
            max_workers=CONNECTIONS,
        )
    except FetchError:
        raise
    except GatedRepoError as error:
        raise FetchError("the hub asks for a token that may read it (HF_TOKEN)") from error
    except RevisionNotFoundError as error:
        raise FetchError(f"the hub has no revision {revision!r} of it") from error
    except RepositoryNotFoundError as error:
        raise FetchError("the hub has no such model, or none that anybody may read") from error
    except Exception as error:  # also of the HTTP client's own
        raise FetchError(f"{type(error).__name__}: {error}") from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # what huggingface_hub noted
    _flatten(files, folder)
    _check_files({Path(name).name: size for name, size in files.items()}, folder)


def _flatten(names: Iterable[str], folder: Path) -> None:
    for name in names:
        if "/" in name and (folder / name).exists():
            os.rename(folder / name, folder / Path(name).name)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _check_disk(total: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free - DISK_RESERVE_BYTES
    if total > free:
        raise FetchError(f"it has {gib(total)} GiB, and {gib(max(free, 0))} GiB are free")


def _check_files(files: Mapping[str, int], folder: Path) -> None:
    there = {path.name: path for path in folder.iterdir()}
    for name, size in files.items():
        path = there.get(name)
        if path is None or not path.is_file() or path.is_symlink() or path.stat().st_size != size:
            raise FetchError(f"{name} did not arrive whole")
    if there.keys() != files.keys():
        raise FetchError(f"{sorted(there.keys() - files.keys())[0]} came, and was not asked for")


def _watch(folder: Path, total: int) -> None:
    """Tells how much has come, and ends the process if that is more than the hub has said."""
    while True:
        done = size_of(folder)
        if done > total + (64 << 20):
            _tell(error="its files are larger than the hub says")
            os._exit(1)
        _tell(done=min(done, total))
        threading.Event().wait(TELL_INTERVAL_S)


def size_of(folder: Path) -> int:
    """Bytes of all files below. Those that go meanwhile do not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def gib(size: float) -> str:
    return f"{size / (1 << 30):.1f}"


def _tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def _end_with_the_router() -> None:
    # Not by a file object, whose lock the interpreter needs at its end.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def main(model: str, revision: str, folder: str) -> int:
    threading.Thread(target=_end_with_the_router, daemon=True).start()
    try:
        fetch(model, revision or None, Path(folder))
    except FetchError as error:
        _tell(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
