"""Finds the key of the deployment, which encrypts what clients keep of the server's. It never shows
it.

All replicas of an ingress have one key, because it is found once, where the application is built.
"""

import logging
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

VARIABLE = "MANTA_ENCRYPTION_KEY"
KEY_FILE = "~/.manta/encryption_key"
MIN_LENGTH = 32  # characters; half of them are worth 128 bits if they are hexadecimal digits

log = logging.getLogger(__name__)


def encryption_key(file: str | None) -> bytes:
    """The key in this file, or else of the environment, or else of KEY_FILE, which is made if it is
    not there. Where that can't be, the key is a new one.

    Raises ValueError for a source that is named but has no usable key.
    """
    if file is not None:
        return _of_file(Path(file), f"encryption_key_file: {file}")
    if given := os.environ.get(VARIABLE, ""):
        return _checked(given, VARIABLE)
    path = Path(KEY_FILE)
    try:
        path = path.expanduser()
        if not path.exists():
            _make(path)
    except (OSError, RuntimeError) as error:  # RuntimeError for an unknown home
        log.warning("thoughts can't be decrypted after a restart: no %s: %s", path, error)
        return secrets.token_bytes(MIN_LENGTH)
    return _of_file(path, str(path))


def _make(path: Path) -> None:
    """Several applications may be built at once: the file is whole from its beginning, and the
    first one stays.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent) as made:  # for the owner alone
        made.write(secrets.token_hex(MIN_LENGTH))
        made.flush()
        with suppress(FileExistsError):
            os.link(made.name, path)


def _of_file(path: Path, source: str) -> bytes:
    try:
        text = path.expanduser().read_text()
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(f"{source} can't be read: {error}") from error
    return _checked(text, source)


def _checked(text: str, source: str) -> bytes:
    key = text.strip()
    if len(key) < MIN_LENGTH:
        raise ValueError(f"the key of {source} has fewer than {MIN_LENGTH} characters")
    return key.encode()
