"""The names of models of the hub, and of their folders; what could be a path is no name."""

import re
from pathlib import Path

from deployments.contract.errors import RequestError, refused
from deployments.router.presets.paths import model_folders

PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
NAME = re.compile(f"{PART}/{PART}")
REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}")
SEPARATOR = "--"  # the hub allows it in no name, so that a folder's name is that of one model
FORBIDDEN = (SEPARATOR, "..")


def refuse_name(model: str, revision: str | None) -> RequestError | None:
    """Why it is no name of a model, or of a revision."""
    if not NAME.fullmatch(model) or any(mark in model for mark in FORBIDDEN):
        hint = "; a tag chooses among GGUF files, which can't be read" if ":" in model else ""
        return refused(f"`model` must be OWNER/NAME, as the hub has it{hint}", "model").error
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
