"""The operating system's calls that a folder of bundles is made of, in one place."""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


class TierFiles:
    """Each method raises OSError as the system does. Files are for their user alone."""

    def make_folder(self, path: Path) -> None:
        """Makes a folder, and those above it, in so far as they are not there, of mode 0700."""
        if not path.is_dir():
            self.make_folder(path.parent)
            path.mkdir(mode=0o700, exist_ok=True)

    def entries(self, path: Path) -> Iterable[os.DirEntry[str]]:
        """Lists what is in a folder."""
        with os.scandir(path) as found:
            return [*found]

    @contextmanager
    def reading(self, path: Path) -> Iterator[int]:
        """A file that is open to be read."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fills a buffer from an offset of a file; returns how many bytes there were."""
        n = 0
        while n < len(buffer):
            if not (read := os.preadv(descriptor, [buffer[n:]], offset + n)):
                break
            n += read
        return n

    def write(self, path: Path, pieces: Sequence[bytes | memoryview]) -> None:
        """Writes a new file of mode 0600. What is left of one that fails is the caller's."""
        with self.writing(path) as descriptor:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]

    @contextmanager
    def writing(self, path: Path) -> Iterator[int]:
        """A new file of mode 0600 that is open to be written."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def write_at(self, descriptor: int, piece: bytes | memoryview, offset: int) -> None:
        """Writes at an offset of a file."""
        rest = memoryview(piece)
        while rest:
            n = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[n:], offset + n

    def size(self, descriptor: int) -> int:
        """Bytes of a file."""
        return os.fstat(descriptor).st_size

    def rename(self, path: Path, to: Path) -> None:
        """Gives a file another name, in the place of one that has it."""
        path.rename(to)

    def remove(self, path: Path) -> None:
        """Removes a file, if it is there."""
        path.unlink(missing_ok=True)

    def remove_empty(self, path: Path) -> None:
        """Removes a folder, if it is empty."""
        with suppress(OSError):
            path.rmdir()

    def set_used(self, path: Path, when: float) -> None:
        """Sets a file's times, in seconds."""
        os.utime(path, (when, when))

    def lock(self, path: Path) -> int | None:
        """Locks a file for this process; None where another one has it. Closing the descriptor
        unlocks it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def close(self, descriptor: int) -> None:
        """Closes a descriptor."""
        os.close(descriptor)
