"""Reads API keys from the arguments, a file or the environment. It never shows one."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "MANTA_API_KEY"
WELL_FORMED = re.compile(r"[!-~]+")  # characters that a header keeps unchanged
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """`owners` has the names of those whose keys have one."""

    keys: tuple[str, ...]
    owners: Mapping[str, str] = field(default_factory=dict)


def api_keys(given: Sequence[str], file: str | None) -> ApiKeys:
    """The keys of the arguments, or else of the environment. None means that no key is required.

    Raises ValueError for a source that is named but has no usable key.
    """
    if given or file is not None:
        plain = _checked(given, "api_keys")
        lines = [] if file is None else _of_file(file)
        owners = {key: name for name, key in lines if name}
        return ApiKeys((*plain, *(key for _, key in lines)), owners)
    listed = os.environ.get(VARIABLE, "")
    keys = [key.strip() for key in listed.split(",") if key.strip()]
    return ApiKeys(_checked_some(keys, VARIABLE) if listed else ())


def _of_file(file: str) -> list[tuple[str, str]]:
    """The name of each line, "" without one, and its key."""
    try:
        text = Path(file).expanduser().read_text()
    except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError for an unknown home
        raise ValueError(f"api_key_file: {file} can't be read: {error}") from error
    lines = [line.split() for line in text.splitlines()]
    found = [("", *line)[-2:] for line in lines if line and not line[0].startswith("#")]
    if any(len(line) > 2 and not line[0].startswith("#") for line in lines):
        raise ValueError(f"{file}: a line must be KEY, or NAME KEY")
    keys = _checked_some([key for _, key in found], file)
    if len(set(keys)) < len(keys):
        raise ValueError(f"{file} has an API key twice")
    wrong = [name for name, _ in found if name and not NAME.fullmatch(name)]
    if wrong:  # a name, unless its line is the wrong way round: it is not shown
        raise ValueError(
            f"{file}: the name of a key must be 1 to 64 letters, digits and any of . _ @ -"
        )
    return [(name, key) for name, key in found]


def _checked_some(keys: Sequence[str], source: str) -> tuple[str, ...]:
    if not keys:
        raise ValueError(f"{source} has no API key in it")
    return _checked(keys, source)


def _checked(keys: Sequence[str], source: str) -> tuple[str, ...]:
    if not all(map(WELL_FORMED.fullmatch, keys)):
        raise ValueError(f"an API key of {source} is empty, or has spaces or is not ASCII")
    return tuple(keys)
