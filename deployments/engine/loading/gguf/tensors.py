"""The tensors of a GGUF file: their bytes as the file has them. Free of torch, for routers."""

from dataclasses import dataclass
from math import prod

import numpy as np

from deployments.engine.loading.formats.mapped_file import SHORTER, FileSpan, MappedFile
from deployments.engine.loading.gguf.block_types import (
    BLOCK_TYPES,
    BlockType,
    Bytes,
    type_name,
)
from deployments.engine.loading.gguf.errors import GGUFError


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

    def span(self, start: int = 0, stop: int | None = None) -> FileSpan:
        """The bytes of rows start:stop. Raises GGUFError for a type that is not read here."""
        stop = self.n_rows if stop is None else stop
        first, end = (self.offset + row * self.row_bytes for row in (start, stop))
        return FileSpan(self.file, first, end)

    def rows(self, start: int | None = None, stop: int | None = None) -> Bytes:
        """The bytes of rows start:stop as the file has them: uint8 [rows, row_bytes].

        They are not copied. The file must not become shorter while they are used: the process would
        end. `torch.from_numpy` takes them as they are.

        Raises GGUFError for a type that is not read here or a file that has become shorter, or
        OSError.
        """
        size = self.n_rows * self.row_bytes
        try:
            found = np.frombuffer(self.file.data, np.uint8, size, self.offset)
        except ValueError as error:
            raise GGUFError(f"{self.file.path}: tensor {self.name!r}: {SHORTER}") from error
        return found.reshape(self.n_rows, self.row_bytes)[start:stop]
