"""Files of weights, which are read where they lie, as if they were memory. Free of torch, for
routers."""

import mmap
from pathlib import Path
from typing import NamedTuple

SHORTER = "the file has become shorter since it was opened"


class MappedFile:
    """A file that tensors lie in. It is mapped as a whole when the first of them is read."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size  # in bytes
        self._data: mmap.mmap | None = None

    @property
    def data(self) -> mmap.mmap:
        """Raises OSError, or ValueError if the file is shorter than it was."""
        if self._data is None:
            with self.path.open("rb") as file:
                # Torch takes no array without a warning that can't be written. What is written
                # stays in memory.
                self._data = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_COPY)
        return self._data

    def let_go(self, first: int, end: int) -> None:
        """Gives the memory back that bytes take since they were read. They can be read again, and
        must not have been written.

        Pages at either end that have other bytes stay: those may have been written, as weights are
        that something is merged into.
        """
        first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        n_bytes = end // mmap.PAGESIZE * mmap.PAGESIZE - first
        if self._data is not None and n_bytes > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED, first, n_bytes)


class FileSpan(NamedTuple):
    """The bytes of a tensor in its file, from the first one to the end."""

    file: MappedFile
    first: int
    end: int

    def let_go(self) -> None:
        self.file.let_go(self.first, self.end)
