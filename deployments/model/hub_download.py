"""Brings GGUF files of the hub to this machine, into the cache of the hub's library.

What is there already is not asked for again. HF_ENDPOINT and HF_TOKEN are the operator's.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace

from deployments.engine.loading.gguf.names import (
    chosen_files,
    is_gguf,
    lacks_parts,
    listed_models,
    split_hub_name,
)
from deployments.engine.loading.weight_files import has_weights
from deployments.model.local_files import cached_gguf, snapshot
from deployments.model.settings import ModelSettings, check_settings

log = logging.getLogger("ray.serve")

ASK_TIMEOUT_S = 10.0
WEIGHTS = (".safetensors", ".bin")


def with_local_files(settings: ModelSettings) -> ModelSettings:
    """The settings with paths on this machine in the place of names of GGUF files. It blocks while
    files are downloaded.

    Raises OSError where a file can't be had, or ValueError for settings that it can't have.
    """
    draft = settings.draft_model
    local = replace(
        settings,
        path=local_path(settings.path),
        draft_model=None if draft is None else local_path(draft),
    )
    check_settings(local)  # of some repositories it was not known that they have GGUF files
    return local


def local_path(model: str) -> str:
    """The path that the engine loads. Repositories with weights of transformers stay names: these
    are brought as they are loaded. Raises OSError."""
    if os.path.exists(model):
        return model
    repository, choice = split_hub_name(model) or (model, "")
    if not choice and (is_gguf(model) or has_weights(snapshot(repository))):
        return model
    cached = cached_gguf(repository, choice)
    if cached is not None and choice:
        return str(cached)
    try:
        names = _files_of(repository)
    except Exception as error:  # also of the HTTP client's own
        if choice:
            raise OSError(f"{repository} of the hub can't be read: {_reason(error)}") from error
        return model if cached is None else str(cached)  # transformers says what is wrong
    files = chosen_files(names, choice)
    if not choice and (not files or any(name.endswith(WEIGHTS) for name in names)):
        return model
    if not files or lacks_parts(files):
        raise FileNotFoundError(f"{repository} has no GGUF model {choice}{listed_models(names)}")
    return _download(repository, files)


def _files_of(repository: str) -> list[str]:
    from huggingface_hub import HfApi

    found = HfApi().model_info(repository, timeout=ASK_TIMEOUT_S)
    return [file.rfilename for file in found.siblings or ()]


def _download(repository: str, files: Sequence[str]) -> str:
    from huggingface_hub import HfApi

    log.info("downloading %s of %s", ", ".join(files), repository)
    try:
        folder = HfApi().snapshot_download(repository, allow_patterns=[*files])
    except Exception as error:
        raise OSError(f"{files[0]} of {repository} can't be had: {_reason(error)}") from error
    return os.path.join(folder, files[0])


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
