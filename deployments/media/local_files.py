"""Reads files below the one folder that an operator allows, whatever a path says."""

import os
import stat
from pathlib import Path


class LocalFileError(Exception):
    """The path is refused; the message says why."""


def read_local(folder: str, path: str, max_bytes: int) -> bytes:
    """Follows links only as far as they stay in the folder. Raises LocalFileError."""
    root = Path(folder).resolve()
    try:
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise LocalFileError("is not below the media folder")
        descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError, RuntimeError):
        raise LocalFileError("is no file of the media folder") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LocalFileError("is no file of the media folder")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise LocalFileError(f"has more than {max_bytes:,} bytes, the most that is allowed")
    return data
