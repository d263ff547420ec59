"""The format of a bundle: an immutable file with some pages of one chain and one owner.

A header of ALIGNMENT bytes names what the file holds, with a checksum of each page and one of
itself. Each page begins at a multiple of ALIGNMENT.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct, error
from zlib import crc32

from kv.arrivals import PageKey
from kv.content import DIGEST_BYTES

MAGIC = b"MANTA KV"
FORMAT = 1
ALIGNMENT = 4096
MAX_RECORDS = 64
OWNER_BYTES = 8
NO_PARENT = bytes(DIGEST_BYTES)
SUFFIX = ".kv"
# Magic, format, number of records, namespace, owner, parent of the first page, number of that page.
_HEAD = Struct(f"<8sII{DIGEST_BYTES}s{OWNER_BYTES}s{DIGEST_BYTES}sI")
_RECORD = Struct(f"<{DIGEST_BYTES}sIII")  # hash, group, length in bytes, CRC-32
_CRC = Struct("<I")


class BundleError(ValueError):
    """A file that is no bundle, or not all of one."""


@dataclass(frozen=True, slots=True)
class Record:
    """One page of a bundle: `length` bytes at `offset` of the file."""

    key: PageKey
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class BundleHeader:
    """namespace: DIGEST_BYTES bytes for all that pages depend on besides their hashes.
    owner: OWNER_BYTES bytes, as `owner_tag` makes them.
    parent: the hash of the page before the first one, or NO_PARENT.
    first_page: the number of the first page in its chain.
    """

    namespace: bytes
    owner: bytes
    parent: bytes
    first_page: int
    records: tuple[Record, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        last = self.records[-1]
        return aligned(last.offset + last.length)

    @property
    def name(self) -> str:
        """The name of the file: the same for the same pages of the same owner."""
        digest = blake2b(digest_size=DIGEST_BYTES)
        for record in self.records:
            digest.update(record.key.page_hash + bytes([record.key.group]))
        return f"{self.owner.hex()}-{digest.hexdigest()}{SUFFIX}"

    def encode(self) -> bytes:
        """The header, ALIGNMENT bytes."""
        raw = _HEAD.pack(
            MAGIC,
            FORMAT,
            len(self.records),
            self.namespace,
            self.owner,
            self.parent,
            self.first_page,
        )
        raw += b"".join(
            _RECORD.pack(*record.key, record.length, record.crc) for record in self.records
        )
        return (raw + _CRC.pack(crc32(raw))).ljust(ALIGNMENT, b"\0")


def make_header(
    namespace: bytes,
    owner: bytes,
    parent: bytes,
    first_page: int,
    pages: Sequence[tuple[PageKey, int, int]],
) -> BundleHeader:
    """`pages` are keys, lengths in bytes and checksums, in the order of the file."""
    records, offset = [], ALIGNMENT
    for key, length, crc in pages:
        records.append(Record(key, offset, length, crc))
        offset = aligned(offset + length)
    return BundleHeader(namespace, owner, parent, first_page, tuple(records))


def decode_header(raw: bytes) -> BundleHeader:
    """Reads the first ALIGNMENT bytes of a file. Raises BundleError if they are no header."""
    try:
        magic, version, n, namespace, owner, parent, first_page = _HEAD.unpack_from(raw)
        end = _HEAD.size + n * _RECORD.size
        if (magic, version) != (MAGIC, FORMAT) or not 0 < n <= MAX_RECORDS:
            raise BundleError("another file or another format")
        if _CRC.unpack_from(raw, end)[0] != crc32(raw[:end]):
            raise BundleError("the header was changed")
        found = [_RECORD.unpack_from(raw, _HEAD.size + i * _RECORD.size) for i in range(n)]
    except error as short:
        raise BundleError("the header is not whole") from short
    pages = [(PageKey(page_hash, group), length, crc) for page_hash, group, length, crc in found]
    return make_header(namespace, owner, parent, first_page, pages)


def owner_tag(owner: str) -> bytes:
    """OWNER_BYTES bytes that stand for an owner, and do not say who it is."""
    raw = owner.encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=OWNER_BYTES, person=b"manta owner").digest()


def aligned(n_bytes: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
