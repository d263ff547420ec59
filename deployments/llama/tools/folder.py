"""A folder that nothing done here leaves: paths are walked name by name, and no link is followed.

Every name is opened relative to the directory that was opened before it, so whoever renames or
links at the same time does not lead out either.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would be waited for
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_PATH_CHARACTERS = 4096
DEEPEST = 128

Path = tuple[str, ...]  # names below the folder


class ToolError(Exception):
    """What goes to the model as the tool's answer."""


class Folder:
    """`root` is a path without links, or with links that its owner has set."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def path(self, given: str, base: Path = ()) -> Path:
        """Of a path relative to `base`, or of one that is whole and leads into the folder."""
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
        if len(parts) > DEEPEST:
            raise ToolError(f"a path has at most {DEEPEST} names")
        return parts

    @contextmanager
    def directory(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """A descriptor of it."""
        with told(path):
            found = self._descend(path, create)
        try:
            yield found
        finally:
            os.close(found)

    def read(self, path: Path, limit: int) -> bytes:
        """The whole of a plain file that has no more than `limit` bytes."""
        if not path:
            raise ToolError("not a file: the folder itself")
        with self.directory(path[:-1]) as parent, told(path):
            return read_at(parent, path[-1], limit)

    def write(self, path: Path, content: bytes) -> None:
        """Whole or not at all: whoever reads meanwhile has the old content or the new."""
        if not path:
            raise ToolError("not a file: the folder itself")
        with self.directory(path[:-1], create=True) as parent, told(path):
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
    """The permissions of the plain file that is replaced, or those of a new one."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(mode):
        raise ToolError(f"not a file: {name}")
    return mode & 0o777


def written(path: Sequence[str]) -> str:
    """A name may be any bytes: what is broken in it becomes U+FFFD."""
    return os.fsencode("/".join(path)).decode("utf-8", "replace")


@contextmanager
def told(path: Sequence[str]) -> Iterator[None]:
    """What the system refuses, in words, about a path below the folder."""
    try:
        yield
    except OSError as failure:
        name = written(path) or "."
        if failure.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolError(f"{name} is or leads through a link or no directory") from failure
        raise ToolError(f"{name}: {os.strerror(failure.errno or 0)}") from failure
