"""Reads safetensors files: their headers, and their tensors where they lie.

A file is a length of 8 bytes, a header in JSON and the tensors, one behind the other. Whatever is
wrong with it names the file, and the tensor if it is one's.

Source: the README of safetensors.
"""

import json
import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.mapped_file import SHORTER, FileSpan, MappedFile

LENGTH = struct.Struct("<Q")
MAX_HEADER_BYTES = 100_000_000  # as in the library
MAX_DIMS = 64  # that torch has
MAX_NAME_CHARS = 200  # that an error quotes
METADATA = "__metadata__"
GIT_LFS_HEADER = b"version https://git-lfs"
POINTER = "is a pointer of git-lfs and not the file: fetch it with `git lfs pull`"
DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}


class FileTensor(NamedTuple):
    """A tensor of a file, of which nothing has been read yet."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    span: FileSpan

    def mapped(self) -> Tensor:
        """The tensor where it lies: it takes no memory before it is read. Raises
        UnsupportedModelError if the file has become shorter, or OSError."""
        if 0 in self.shape:
            return torch.empty(self.shape, dtype=self.dtype)
        file, first, end = self.span
        try:
            data = file.data
        except ValueError as error:
            raise UnsupportedModelError(f"{file.path}: tensor {self.name!r}: {SHORTER}") from error
        numbers = torch.frombuffer(data, dtype=torch.uint8, count=end - first, offset=first)
        return numbers.view(self.dtype).view(self.shape)

    def without_numbers(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def read_safetensors(path: Path) -> list[FileTensor]:
    """The tensors of a file in the order in which they lie. Nothing but its header is read.

    Raises UnsupportedModelError for a file that is missing, torn, or not as its header says, or
    OSError.
    """
    return _SafetensorsHeader(path).tensors()


def is_pointer(file: Path) -> bool:
    """Whether it is what git-lfs writes in the place of a file."""
    with file.open("rb") as start:
        return start.read(len(GIT_LFS_HEADER)) == GIT_LFS_HEADER


class _SafetensorsHeader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def tensors(self) -> list[FileTensor]:
        header, size = self._header()
        file, start = MappedFile(self._path, size), LENGTH.size + len(header)
        found = [self._tensor(name, entry, file, start) for name, entry in self._entries(header)]
        found.sort(key=lambda tensor: (tensor.span.first, tensor.span.end))
        self._check_places(found, start, size)
        return found

    def _header(self) -> tuple[bytes, int]:
        """The header, and the size of the file."""
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = file.read(LENGTH.size)
                end = LENGTH.size + LENGTH.unpack(start.ljust(LENGTH.size, b"\0"))[0]
                if len(start) == LENGTH.size and end <= min(size, MAX_HEADER_BYTES):
                    return file.read(end - LENGTH.size), size
        except FileNotFoundError as error:
            raise UnsupportedModelError(f"{self._path} is missing") from error
        if is_pointer(self._path):
            raise UnsupportedModelError(f"{self._path} {POINTER}")
        raise self._error(f"its header ends at byte {end}, and the file has {size}")

    def _entries(self, header: bytes) -> list[tuple[str, Any]]:
        try:
            entries = json.loads(header)
        except (ValueError, RecursionError) as error:
            raise self._error(f"its header is no JSON: {error}") from error
        if not isinstance(entries, dict):
            raise self._error("its header is no object")
        return [(name, entry) for name, entry in entries.items() if name != METADATA]

    def _tensor(self, name: str, entry: Any, file: MappedFile, start: int) -> FileTensor:
        """start: the byte that offsets are counted from."""
        fields = entry if isinstance(entry, dict) else {}
        kind, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
        if not isinstance(kind, str) or kind not in DTYPES:
            raise self._error(f"its type {kind!r:.50} is not supported", name)
        if not _are_sizes(shape) or len(shape) > MAX_DIMS:
            raise self._error(f"its shape is {shape!r:.50}", name)
        if not _are_sizes(offsets) or len(offsets) != len(("first", "end")):
            raise self._error(f"its offsets are {offsets!r:.50}", name)
        n_bytes, n_said = prod(shape) * DTYPES[kind].itemsize, offsets[1] - offsets[0]
        if n_bytes != n_said:
            raise self._error(f"{kind} {shape} has {n_bytes} bytes, and it has {n_said}", name)
        span = FileSpan(file, start + offsets[0], start + offsets[1])
        return FileTensor(name, DTYPES[kind], tuple(shape), span)

    def _check_places(self, found: list[FileTensor], at: int, size: int) -> None:
        """Each tensor begins where the one before it ends, and the last one ends with the file."""
        for tensor in found:
            _, first, end = tensor.span
            if first != at:
                raise self._error(f"it begins at byte {first}, and not at {at}", tensor.name)
            if end > size:
                raise self._error(f"it ends at byte {end}, and the file has {size}", tensor.name)
            at = end
        if at != size:
            raise self._error(f"its tensors end at byte {at}, and the file has {size}")

    def _error(self, reason: str, tensor: str | None = None) -> UnsupportedModelError:
        place = "" if tensor is None else f"tensor {tensor[:MAX_NAME_CHARS]!r}: "
        return UnsupportedModelError(f"{self._path} is broken or not whole: {place}{reason}")


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
