"""Reads API keys from the arguments, a file or the environment. It never shows one."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "MANTA_API_KEY"
WELL_FORMED = re.compile(r"[!-~]+")  # characters that a header keeps unchanged


def api_keys(given: Sequence[str], file: str | None) -> tuple[str, ...]:
    """The keys of the arguments, or else of the environment. () means that no key is required.

    Raises ValueError for a source that is named but has no usable key.
    """
    if given or file is not None:
        return (*_checked(given, "api_keys"), *(() if file is None else _of_file(file)))
    listed = os.environ.get(VARIABLE, "")
    keys = [key.strip() for key in listed.split(",") if key.strip()]
    return _checked_some(keys, VARIABLE) if listed else ()


def _of_file(file: str) -> tuple[str, ...]:
    try:
        text = Path(file).expanduser().read_text()
    except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError for an unknown home
        raise ValueError(f"api_key_file: {file} can't be read: {error}") from error
    lines = (line.strip() for line in text.splitlines())
    return _checked_some([line for line in lines if line and not line.startswith("#")], file)


def _checked_some(keys: Sequence[str], source: str) -> tuple[str, ...]:
    if not keys:
        raise ValueError(f"{source} has no API key in it")
    return _checked(keys, source)


def _checked(keys: Sequence[str], source: str) -> tuple[str, ...]:
    if not all(map(WELL_FORMED.fullmatch, keys)):
        raise ValueError(f"an API key of {source} is empty, or has spaces or is not ASCII")
    return tuple(keys)
