"""Reads the header of a GGUF file: its metadata and its table of tensors. Free of torch.

The file is a stranger's. Lengths and counts in it are checked against its bytes before memory is
taken for them, so that the memory for a header is in proportion to its bytes.

Source: docs/gguf.md of ggml, and gguf.cpp.
"""

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deployments.engine.loading.formats.mapped_file import MappedFile
from deployments.engine.loading.gguf.block_types import BLOCK_TYPES
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.tensors import GGUFTensor

Value: TypeAlias = "bool | int | float | str | NDArray[np.generic] | list[str] | list[Value]"

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Types of values: of numbers, and three others.
NUMBERS: Mapping[int, np.dtype[np.generic]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
BYTES, BOOL, STRING, ARRAY = 0, 7, 8, 9

FIXED = struct.Struct("<4sIQQ")  # magic, version, number of tensors, number of keys
LENGTH = struct.Struct("<Q")  # of a string
TYPE, ARRAY_START = struct.Struct("<i"), struct.Struct("<iQ")
RANK, PLACE = struct.Struct("<I"), struct.Struct("<iQ")

ALIGNMENT_KEY, DEFAULT_ALIGNMENT = "general.alignment", 32
MAX_RANK = 4
MAX_NESTED_ARRAYS = 4
# A vocabulary of 262,144 tokens takes some 8 MB.
MAX_HEADER_BYTES = 1 << 26
MAX_NAME_CHARS = 80  # of a key or a tensor that an error quotes


@dataclass(frozen=True)
class GGUFHeader:
    """The part of a file that stands before its weights.

    metadata: arrays of numbers are arrays of numpy that can't be written, other arrays are lists.
    tensors: in the order of the file's table.
    """

    path: Path
    metadata: Mapping[str, Value]
    tensors: tuple[GGUFTensor, ...]


def read_header(path: Path) -> GGUFHeader:
    """Reads nothing behind the header. Raises GGUFError, or OSError where the file can't be opened.

    A tensor whose type is unknown is no error before it is read.
    """
    if not path.is_file():  # opening a pipe would wait for ever
        raise GGUFError(f"{path}: there is no such file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < FIXED.size:
            raise GGUFError(f"{path}: it is no GGUF file: it has {size} bytes")
        n_mapped = min(size, MAX_HEADER_BYTES)
        with mmap.mmap(file.fileno(), n_mapped, access=mmap.ACCESS_READ) as data:
            return _HeaderReader(MappedFile(path, size), data).header()


class _HeaderReader:
    """Reads one value after the other."""

    def __init__(self, file: MappedFile, data: mmap.mmap) -> None:
        self._file = file
        self._data = data
        self._at = 0  # the next byte
        self._place = "header"  # for errors

    def header(self) -> GGUFHeader:
        magic, version, n_tensors, n_keys = self._unpack(FIXED)
        if magic != MAGIC:
            raise self._error("it is no GGUF file")
        if version & 0xFFFF == 0:
            raise self._error("it is a big-endian GGUF file, which is not supported")
        if version not in VERSIONS:
            raise self._error(f"version {version} of GGUF is not supported, only 2 and 3 are")
        metadata = self._metadata(n_keys)
        alignment = self._alignment(metadata)
        entries = [self._entry(number) for number in range(n_tensors)]
        data_start = -(-self._at // alignment) * alignment
        tensors = tuple(self._tensor(entry, data_start, alignment) for entry in entries)
        return GGUFHeader(self._file.path, metadata, tensors)

    def _metadata(self, n_keys: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for number in range(n_keys):
            self._place = f"key {number}"
            key = self._string()
            self._place = f"key {key[:MAX_NAME_CHARS]!r}"
            if key in found:
                raise self._error("it is there twice")
            found[key] = self._value()
        return found

    def _alignment(self, metadata: Mapping[str, Value]) -> int:
        self._place = f"key {ALIGNMENT_KEY!r}"
        alignment = metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._error("it is no power of two")
        return alignment

    def _entry(self, number: int) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type and offset of a tensor as the table has them, the shape in torch's
        order."""
        self._place = f"tensor {number}"
        name = self._string()
        self._place = f"tensor {name[:MAX_NAME_CHARS]!r}"
        (rank,) = self._unpack(RANK)
        if rank > MAX_RANK:
            raise self._error(f"it has {rank} dimensions, more than {MAX_RANK}")
        sizes = self._unpack(struct.Struct(f"<{rank}Q"))
        type_id, offset = self._unpack(PLACE)
        return name, sizes[::-1], type_id, offset

    def _tensor(
        self, entry: tuple[str, tuple[int, ...], int, int], data_start: int, alignment: int
    ) -> GGUFTensor:
        name, shape, type_id, offset = entry
        self._place = f"tensor {name[:MAX_NAME_CHARS]!r}"
        if 0 in shape:
            raise self._error(f"its shape {shape} has no elements")
        if offset % alignment:
            raise self._error(f"its offset {offset} is no multiple of {alignment}")
        tensor = GGUFTensor(name, shape, type_id, data_start + offset, self._file)
        n_bytes = 0  # at least, where the type is unknown
        if (block_type := BLOCK_TYPES.get(type_id)) is not None:
            if tensor.row_weights % block_type.n_weights:
                raise self._error(
                    f"its rows of {tensor.row_weights} weights are no whole blocks of "
                    f"{block_type.name}, which have {block_type.n_weights}"
                )
            n_bytes = prod(shape) // block_type.n_weights * block_type.n_bytes
        if tensor.offset + n_bytes > self._file.size:
            raise self._error(
                f"it ends at byte {tensor.offset + n_bytes}, and the file has {self._file.size}"
            )
        return tensor

    def _value(self) -> Value:
        (kind,) = self._unpack(TYPE)
        if kind in NUMBERS or kind == BOOL:
            number: bool | int | float = self._numbers(kind, 1)[0].item()
            return number
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._array(MAX_NESTED_ARRAYS)
        raise self._error(f"there is no type {kind} of values")

    def _array(self, max_depth: int) -> Value:
        if max_depth == 0:
            raise self._error(f"more than {MAX_NESTED_ARRAYS} arrays are within each other")
        kind, count = self._unpack(ARRAY_START)
        if kind in NUMBERS or kind == BOOL:
            return self._numbers(kind, count)
        if kind == STRING:
            return self._strings(count)
        if kind == ARRAY:
            return [self._array(max_depth - 1) for _ in range(count)]
        raise self._error(f"there is no type {kind} of values")

    def _numbers(self, kind: int, count: int) -> NDArray[np.generic]:
        if kind == BOOL:
            return self._numbers(BYTES, count).astype(np.bool_)  # whatever is not 0
        start = self._step(count * NUMBERS[kind].itemsize)
        return np.frombuffer(self._data[start : self._at], NUMBERS[kind])

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        """The next strings in one pass: a vocabulary has hundreds of thousands of them."""
        data, end, unpack = self._data, len(self._data), LENGTH.unpack_from
        at, found = self._at, list[str]()
        try:
            for _ in range(count):
                start = at + LENGTH.size
                at = start + unpack(data, at)[0]
                if at > end:
                    raise self._past_end()
                found.append(data[start:at].decode())
        except struct.error:
            raise self._past_end() from None
        except UnicodeDecodeError:
            raise self._error("it has a string that is not in UTF-8") from None
        self._at = at
        return found

    def _unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack_from(self._data, self._step(form.size))

    def _step(self, n_bytes: int) -> int:
        """Steps over the next bytes. Returns where they begin."""
        start = self._at
        if n_bytes > len(self._data) - start:
            raise self._past_end()
        self._at = start + n_bytes
        return start

    def _past_end(self) -> GGUFError:
        if len(self._data) < self._file.size:
            return self._error(f"the header has more than {MAX_HEADER_BYTES} bytes")
        return self._error("it goes past the end of the file")

    def _error(self, reason: str) -> GGUFError:
        return GGUFError(f"{self._file.path}: {self._place}: {reason}")
