"""Confines the tools to a folder: paths are opened name by name, and no link is followed.

Each name is opened relative to its opened parent directory, so concurrent renames or new links do
not lead out of the folder, either.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block otherwise
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_PATH_CHARACTERS = 4096
MAX_PATH_NAMES = 128

Path = tuple[str, ...]  # names below the folder


class ToolError(Exception):
    """An error that is the tool's answer to the model."""


class Folder:
    """`root` is trusted: links in it are followed."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def path(self, given: str, base: Path = ()) -> Path:
        """The names of a path, which is relative to `base` or absolute and inside the folder."""
        if len(given) > MAX_PATH_CHARACTERS or "\0" in given:
            raise ToolError("not a path")
        pure = PurePosixPath(given)
        if pure.is_absolute():
            if not pure.is_relative_to(self.root):
                raise ToolError(f"outside of the folder: {given}")
            base, pure = (), pure.relative_to(self.root)
        parts = (*base, *pure.parts)
        if ".." in parts:
            raise ToolError(f"a path must not have `..`: {given}")
        if len(parts) > MAX_PATH_NAMES:
            raise ToolError(f"a path has at most {MAX_PATH_NAMES} names")
        return parts

    @contextmanager
    def directory(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """A descriptor of the directory."""
        with as_tool_errors(path):
            found = self._descend(path, create)
        try:
            yield found
        finally:
            os.close(found)

    def read(self, path: Path, limit: int) -> bytes:
        """The content of a regular file of at most `limit` bytes."""
        if not path:
            raise ToolError("not a file: the folder itself")
        with self.directory(path[:-1]) as parent, as_tool_errors(path):
            return read_at(parent, path[-1], limit)

    def write(self, path: Path, content: bytes) -> None:
        """Writes atomically: readers see the old content or the new."""
        if not path:
            raise ToolError("not a file: the folder itself")
        with self.directory(path[:-1], create=True) as parent, as_tool_errors(path):
            _write_at(parent, path[-1], content, _mode(parent, path[-1]))

    def is_directory(self, path: Path) -> bool:
        try:
            with self.directory(path):
                return True
        except ToolError:
            return False

    def _descend(self, path: Path, create: bool) -> int:
        found = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in path:
            parent = found
            try:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=parent)
                found = os.open(name, DIRECTORY, dir_fd=parent)
            finally:
                os.close(parent)
        return found


def read_at(parent: int, name: str, limit: int) -> bytes:
    """Raises OSError or ToolError."""
    descriptor = os.open(name, FILE, dir_fd=parent)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"not a file: {name}")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ToolError(f"{name} has more than {limit} bytes")
    return content


def _write_at(parent: int, name: str, content: bytes, mode: int) -> None:
    fresh = f".{secrets.token_hex(8)}.new"
    descriptor = os.open(fresh, NEW, mode, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(fresh, dir_fd=parent)
        raise


def _mode(parent: int, name: str) -> int:
    """The permissions of the regular file that is replaced, or those of a new file."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(mode):
        raise ToolError(f"not a file: {name}")
    return mode & 0o777


def path_text(path: Sequence[str]) -> str:
    """The path as text. Bytes of names that are not UTF-8 become U+FFFD."""
    return os.fsencode("/".join(path)).decode("utf-8", "replace")


@contextmanager
def as_tool_errors(path: Sequence[str]) -> Iterator[None]:
    """Turns an OSError about a path below the folder into a ToolError."""
    try:
        yield
    except OSError as failure:
        name = path_text(path) or "."
        if failure.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolError(f"{name} is or leads through a link or no directory") from failure
        raise ToolError(f"{name}: {os.strerror(failure.errno or 0)}") from failure
