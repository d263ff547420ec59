"""GGUF files byte by byte: a test can put anything into them."""

import struct
from collections.abc import Sequence

U8, BOOL, STRING, ARRAY, U32 = 0, 7, 8, 9, 4
F32, Q4_0, Q8_0 = 0, 2, 8
N_BYTES = {F32: 4, Q4_0: 18, Q8_0: 34}  # of a block


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return u64(len(data)) + data


def array(kind: int, count: int, items: bytes = b"") -> bytes:
    return u32(kind) + u64(count) + items


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + u32(kind) + value


def alignment(value: int) -> bytes:
    return key("general.alignment", U32, u32(value))


def entry(
    name: str | bytes, sizes: Sequence[int] = (4,), type_id: int = F32, offset: int = 0
) -> bytes:
    """A tensor in the table. `sizes` are in the order of the file: that of a row comes first."""
    dimensions = u32(len(sizes)) + b"".join(u64(size) for size in sizes)
    return text(name) + dimensions + u32(type_id) + u64(offset)


def gguf(
    keys: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
    data: bytes = bytes(1 << 10),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    aligned_to: int = 32,
) -> bytes:
    """A file. The counts are those of `keys` and `entries` where they are not given."""
    counts = u64(len(entries) if n_tensors is None else n_tensors)
    counts += u64(len(keys) if n_keys is None else n_keys)
    header = magic + u32(version) + counts + b"".join(keys) + b"".join(entries)
    return header + bytes(-len(header) % aligned_to) + data
