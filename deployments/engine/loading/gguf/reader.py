"""Opens a GGUF model: a file, or all parts of a split one. Free of torch, for routers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.header import GGUFHeader, Value, read_header
from deployments.engine.loading.gguf.names import PART_NAME
from deployments.engine.loading.gguf.tensors import GGUFTensor

PART, N_PARTS, N_TENSORS = "split.no", "split.count", "split.tensors.count"


@dataclass(frozen=True)
class GGUF:
    """A model of one file or of several ones.

    metadata: of the first part. Arrays of numbers are arrays of numpy that can't be written, other
        arrays are lists.
    tensors: by name, in the order of the files.
    files: the parts in order.
    """

    metadata: Mapping[str, Value]
    tensors: Mapping[str, GGUFTensor]
    files: tuple[Path, ...]


def read_gguf(path: Path) -> GGUF:
    """Reads the headers of a model, and nothing of its tensors.

    path: of the file, or of any part of a split model.

    Raises GGUFError where a file is broken or missing, or OSError where it can't be opened.
    """
    given = read_header(path)
    headers = [given]
    if N_PARTS in given.metadata and _number(given, N_PARTS) > 1:
        headers = list(_parts(given))
    tensors: dict[str, GGUFTensor] = {}
    for header in headers:
        for tensor in header.tensors:
            if other := tensors.get(tensor.name):
                raise GGUFError(
                    f"{header.path}: tensor {tensor.name!r}: it is there twice, first in "
                    f"{other.file.path}"
                )
            tensors[tensor.name] = tensor
    return GGUF(headers[0].metadata, tensors, tuple(header.path for header in headers))


def _parts(given: GGUFHeader) -> Iterator[GGUFHeader]:
    """The headers of all parts in order. Raises GGUFError where they are not of one model."""
    n_parts, n_tensors = _number(given, N_PARTS), _number(given, N_TENSORS)
    name = PART_NAME.fullmatch(given.path.name)
    if name is None or int(name[3]) != n_parts:
        raise GGUFError(
            f"{given.path}: it is one of {n_parts} parts, so its name must end with "
            f"-0000X-of-{n_parts:05}.gguf"
        )
    n_found = 0
    for number in range(n_parts):
        path = given.path.with_name(f"{name[1]}-{number + 1:05}-of-{n_parts:05}.gguf")
        header = given if path == given.path else read_header(path)
        for key, expected in ((PART, number), (N_PARTS, n_parts), (N_TENSORS, n_tensors)):
            if _number(header, key) != expected:
                raise GGUFError(
                    f"{path}: key {key!r}: it is of another split: it should be {expected}"
                )
        n_found += len(header.tensors)
        yield header
    if n_found != n_tensors:
        raise GGUFError(
            f"{given.path}: key {N_TENSORS!r}: it is {n_tensors}, and the parts have {n_found}"
        )


def _number(header: GGUFHeader, key: str) -> int:
    value = header.metadata.get(key)
    if not isinstance(value, int):
        raise GGUFError(f"{header.path}: key {key!r}: it is missing, or no whole number")
    return value
