"""The tensors of a GGUF file: their bytes as the file has them. Free of torch, for routers."""

import mmap
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np

from deployments.engine.loading.gguf.block_types import (
    BLOCK_TYPES,
    BlockType,
    Bytes,
    type_name,
)
from deployments.engine.loading.gguf.errors import GGUFError


class MappedFile:
    """A file that tensors lie in. It is mapped as a whole when the first of them is read."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size  # in bytes

    @cached_property
    def data(self) -> mmap.mmap:
        """Raises GGUFError if the file is shorter than it was, or OSError."""
        try:
            with self.path.open("rb") as file:
                # Torch takes no array without a warning that can't be written. What is written
                # stays in memory.
                return mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_COPY)
        except ValueError as error:
            raise GGUFError(f"{self.path}: it has become shorter since it was opened") from error

    def let_go(self, first: int, end: int) -> None:
        """Gives the memory of bytes back that were read, which the system may keep."""
        first -= first % mmap.PAGESIZE
        if hasattr(mmap, "MADV_DONTNEED"):
            self.data.madvise(mmap.MADV_DONTNEED, first, end - first)


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor of a file, of which nothing has been read yet.

    shape: in torch's order. A row is what lies along the last dimension.
    type_id: of its blocks, which may be a type that is not read here.
    offset: of its first byte in the file.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    file: MappedFile

    @property
    def n_rows(self) -> int:
        return prod(self.shape[:-1])

    @property
    def row_weights(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """Raises GGUFError for a type that is not read here."""
        return self.row_weights // self.block_type.n_weights * self.block_type.n_bytes

    @property
    def block_type(self) -> BlockType:
        """Raises GGUFError for a type that is not read here."""
        found = BLOCK_TYPES.get(self.type_id)
        if found is None:
            raise GGUFError(
                f"{self.file.path}: tensor {self.name!r}: its type {type_name(self.type_id)} is "
                "not supported"
            )
        return found

    def let_go(self, start: int, stop: int) -> None:
        """Gives the memory of rows back that were read. They can be read again."""
        first = self.offset + start * self.row_bytes
        self.file.let_go(first, self.offset + stop * self.row_bytes)

    def rows(self, start: int | None = None, stop: int | None = None) -> Bytes:
        """The bytes of rows start:stop as the file has them: uint8 [rows, row_bytes].

        They are not copied. The file must not become shorter while they are used: the process would
        end. `torch.from_numpy` takes them as they are.

        Raises GGUFError for a type that is not read here, or OSError.
        """
        size = self.n_rows * self.row_bytes
        found = np.frombuffer(self.file.data, np.uint8, size, self.offset)
        return found.reshape(self.n_rows, self.row_bytes)[start:stop]
