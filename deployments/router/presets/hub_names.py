"""The names of models of the hub, and of their folders; what could be a path is no name."""

import re
from pathlib import Path

from deployments.contract.errors import RequestError, refused
from deployments.engine.loading.gguf.names import CHOICE
from deployments.router.presets.paths import model_folders

PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
NAME = re.compile(f"{PART}/{PART}(?::{CHOICE})?", re.ASCII)
REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}")
SEPARATOR = "--"  # the hub allows it in no name, so that a folder's name is that of one model
FORBIDDEN = (SEPARATOR, "..")
MAX_NAME_CHARS = 200  # a folder has 255, and one of a download that runs has some more than a name


def refuse_name(model: str, revision: str | None) -> RequestError | None:
    """Why it is no name of a model, or of a revision."""
    is_short = len(folder_name(model)) <= MAX_NAME_CHARS
    if not (NAME.fullmatch(model) and is_short) or any(mark in model for mark in FORBIDDEN):
        words = "OWNER/NAME, as the hub has it, or OWNER/NAME:TAG for one of its GGUF files"
        return refused(f"`model` must be {words}", "model").error
    if revision is None:
        return None
    if not REVISION.fullmatch(revision) or ".." in revision:
        return refused("`revision` must be a branch, a tag or a commit", "revision").error
    return None


def folder_name(model: str) -> str:
    return model.replace("/", SEPARATOR)


def downloaded_folders(folder: Path) -> dict[str, Path]:
    """Complete models by their names. Raises OSError and ValueError."""
    if not folder.is_dir():
        return {}
    found = model_folders(folder)
    return {name.replace(SEPARATOR, "/"): path for name, path in found.items() if SEPARATOR in name}
