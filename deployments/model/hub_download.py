"""Brings models of the hub to this machine, into the cache of the hub's library, and tells how far
that is.

What is there already is not asked for again. HF_ENDPOINT and HF_TOKEN are the operator's.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deployments.engine.loading.gguf.names import (
    chosen_files,
    is_gguf,
    lacks_parts,
    listed_models,
    split_hub_name,
)
from deployments.engine.loading.weight_files import has_weights, weight_files, weights_among
from deployments.model.load_progress import ReportProgress
from deployments.model.local_files import cached_gguf, snapshot
from deployments.model.settings import ModelSettings, check_settings

log = logging.getLogger("ray.serve")

ASK_TIMEOUT_S = 10.0
TELL_INTERVAL_S = 0.25
WEIGHTS = (".safetensors", ".bin")
STAGE = "download"
PARTIAL = "*.incomplete"  # blobs of the cache that are being downloaded
DISK_BLOCK = 512  # bytes, of `st_blocks`


def with_local_files(settings: ModelSettings, report: ReportProgress) -> ModelSettings:
    """The settings with paths on this machine in the place of names of GGUF files. It blocks while
    files are downloaded, and `report` hears how much of them has come.

    Raises OSError where a file can't be had, or ValueError for settings that it can't have.
    """
    draft = settings.draft_model
    local = replace(
        settings,
        path=local_path(settings.path, report),
        draft_model=None if draft is None else local_path(draft, report),
    )
    check_settings(local)  # of some repositories it was not known that they have GGUF files
    return local


def local_path(model: str, report: ReportProgress) -> str:
    """The path that the engine loads. Repositories with weights of transformers stay names:
    `bring_weights` is for them. Raises OSError."""
    if os.path.exists(model):
        return model
    repository, choice = split_hub_name(model) or (model, "")
    if not choice and (is_gguf(model) or has_weights(snapshot(repository))):
        return model
    cached = cached_gguf(repository, choice)
    if cached is not None and choice:
        return str(cached)
    try:
        sizes = _sizes(repository)
    except Exception as error:  # also of the HTTP client's own
        if choice:
            raise OSError(f"{repository} of the hub can't be read: {_reason(error)}") from error
        return model if cached is None else str(cached)  # transformers says what is wrong
    files = chosen_files(sizes, choice)
    if not choice and (not files or any(name.endswith(WEIGHTS) for name in sizes)):
        return model
    if not files or lacks_parts(files):
        raise FileNotFoundError(f"{repository} has no GGUF model {choice}{listed_models(sizes)}")
    return _download(repository, {name: sizes[name] for name in files}, report)


def lacks_weights(model: str) -> bool:
    """Whether it is a repository of the hub whose weights of transformers are not all here."""
    if os.path.exists(model) or is_gguf(model):
        return False
    try:
        files = weight_files(snapshot(model))
    except (OSError, ValueError):  # the index is not whole
        return True
    return not files or not all(file.exists() for file in files)


def bring_weights(repository: str, report: ReportProgress) -> None:
    """Downloads the weights that transformers reads, which would do so without telling. Nothing is
    done where the hub can't be read: transformers says why.

    Raises OSError where a file can't be had.
    """
    try:
        sizes = _sizes(repository)
    except Exception as error:  # also of the HTTP client's own
        log.debug("%s of the hub can't be read: %r", repository, error)
        return
    if files := weights_among(sizes):
        _download(repository, {name: sizes[name] for name in files}, report)


def _sizes(repository: str) -> dict[str, int]:
    """The sizes of all files of a repository."""
    from huggingface_hub import HfApi

    found = HfApi().model_info(repository, timeout=ASK_TIMEOUT_S, files_metadata=True)
    return {file.rfilename: file.size or 0 for file in found.siblings or ()}


def _download(repository: str, sizes: Mapping[str, int], report: ReportProgress) -> str:
    """The path of the first of the files."""
    from huggingface_hub import HfApi

    first, n_more = next(iter(sizes)), len(sizes) - 1
    names, began = f"{first} and {n_more} more" if n_more else first, time.monotonic()
    gib = sum(sizes.values()) / (1 << 30)
    log.info("downloading %s of %s, %.2f GiB", names, repository, gib)
    try:
        with _told(repository, sizes, report):
            folder = HfApi().snapshot_download(repository, allow_patterns=[*sizes])
    except Exception as error:
        raise OSError(f"{first} of {repository} can't be had: {_reason(error)}") from error
    log.info("downloaded %s after %.0f s", repository, time.monotonic() - began)
    return os.path.join(folder, first)


@contextmanager
def _told(repository: str, sizes: Mapping[str, int], report: ReportProgress) -> Iterator[None]:
    """Within, `report` hears again and again how much of the files has come. It hears of the end
    only if they all have."""
    is_over, arrival = threading.Event(), _Arrival(repository, sizes)

    def watch() -> None:
        while not is_over.wait(TELL_INTERVAL_S):
            report(STAGE, arrival.share())

    report(STAGE, arrival.share())
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()
    report(STAGE, 1.0)


class _Arrival:
    """Sees on the disk how much of some files has come, whoever downloads them: another replica of
    this machine may have been first, and the library lets the second one wait."""

    def __init__(self, repository: str, sizes: Mapping[str, int]) -> None:
        self._repository = repository
        self._sizes = sizes
        self._left = self._partial()  # some may be of a download that ended before

    def share(self) -> float:
        folder, total = snapshot(self._repository), max(1, sum(self._sizes.values()))
        whole = sum(size for name, size in self._sizes.items() if (folder / name).exists())
        growing = self._partial()
        partial = sum(size for path, size in growing.items() if self._left.get(path) != size)
        return min(1.0, (whole + partial) / total)

    def _partial(self) -> dict[Path, int]:
        """The bytes of each file that is not whole."""
        blobs = snapshot(self._repository).parents[1] / "blobs"
        return {path: size for path in blobs.glob(PARTIAL) if (size := _bytes_on_disk(path))}


def _bytes_on_disk(path: Path) -> int:
    """The bytes that were written: a file may have holes before its end. 0: it is gone."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return min(found.st_size, found.st_blocks * DISK_BLOCK)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
