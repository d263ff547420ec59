"""The format of a slot file: one sequence, with the pages that a hit of it needs.

A header of whole multiples of ALIGNMENT bytes says what the file holds, with a checksum of each
page and one of itself. Each page begins at a multiple of ALIGNMENT behind it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import Struct, error
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kv.arrivals import PageKey
from kv.content import DIGEST_BYTES, Adapter, Content, PlaceholderRange, page_hash
from kv.tiers.bundle import OWNER_BYTES, Record, aligned

MAGIC = b"MANTA SL"
FORMAT = 1
MAX_HEADER_BYTES = 1 << 28
# Magic, format, bytes of the header, namespace, owner, root, and numbers: of tokens, of bytes that
# describe media and adapters, of pages.
_HEAD = Struct(f"<8sII{DIGEST_BYTES}s{OWNER_BYTES}s{DIGEST_BYTES}sIII")
_RECORD = Struct(f"<{DIGEST_BYTES}sIII")  # hash, group, length in bytes, CRC-32
_CRC = Struct("<I")
_ID_BYTES = 4
NO_SLOT_FILE = "it is no slot file, or one of another version"
CUT = "it is not whole"
CHANGED = "it is not what was saved: a checksum is wrong"


class SlotFileError(ValueError):
    """Why a slot file can't be written or read. The message goes on behind its name."""


class NoRoomError(SlotFileError):
    """The owner's files have all the bytes that they may."""


@dataclass(frozen=True, slots=True, eq=False)
class CachedSequence:
    """A sequence whose pages may be cached.

    token_ids: [n] int32. root: the parent of its first page. hashes: of its full pages.
    """

    token_ids: NDArray[np.int32]
    root: bytes
    hashes: Sequence[bytes]
    media: tuple[PlaceholderRange, ...] = ()
    adapters: tuple[Adapter, ...] = ()

    def first(self, n_pages: int, page_size: int) -> "CachedSequence":
        """Returns the beginning of the sequence, `n_pages` full pages."""
        n = n_pages * page_size
        media = tuple(medium for medium in self.media if medium.first < n)
        ids, hashes = self.token_ids[:n], self.hashes[:n_pages]
        return replace(self, token_ids=ids, hashes=hashes, media=media)

    def with_hashes(self, page_size: int) -> "CachedSequence":
        """Returns the same with the hashes that follow from all else."""
        parent, content, hashes = self.root, Content(media=self.media), []
        for end in range(page_size, len(self.token_ids) + 1, page_size):
            page = self.token_ids[end - page_size : end].astype(np.int64).tobytes()
            parent = page_hash(parent, page, content.extra(end - page_size, end))
            hashes.append(parent)
        return replace(self, hashes=hashes)


@dataclass(frozen=True, slots=True)
class SlotHeader:
    """namespace, owner: as those of a `BundleHeader`."""

    namespace: bytes
    owner: bytes
    sequence: CachedSequence
    records: tuple[Record, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        last = self.records[-1]
        return aligned(last.offset + last.length)

    def encode(self) -> bytes:
        """The header, `header_bytes` bytes."""
        sequence, described = self.sequence, _describe(self.sequence)
        size = header_bytes(sequence, len(self.records))
        counts = len(sequence.token_ids), len(described), len(self.records)
        raw = _HEAD.pack(MAGIC, FORMAT, size, self.namespace, self.owner, sequence.root, *counts)
        raw += sequence.token_ids.astype("<i4").tobytes() + described
        raw += b"".join(
            _RECORD.pack(*record.key, record.length, record.crc) for record in self.records
        )
        return (raw + _CRC.pack(crc32(raw))).ljust(size, b"\0")


def header_bytes(sequence: CachedSequence, n_pages: int) -> int:
    """Bytes of the header of a file with this sequence and so many pages, of all groups."""
    n_ids = _ID_BYTES * len(sequence.token_ids)
    n_records = _RECORD.size * n_pages
    return aligned(_HEAD.size + n_ids + len(_describe(sequence)) + n_records + _CRC.size)


def make_slot_header(
    namespace: bytes,
    owner: bytes,
    sequence: CachedSequence,
    pages: Sequence[tuple[PageKey, int, int]],
) -> SlotHeader:
    """`pages` are keys, lengths in bytes and checksums, in the order of the file."""
    records, offset = [], header_bytes(sequence, len(pages))
    for key, length, crc in pages:
        records.append(Record(key, offset, length, crc))
        offset = aligned(offset + length)
    return SlotHeader(namespace, owner, sequence, tuple(records))


def read_header_bytes(raw: bytes) -> int:
    """Returns how many bytes the header has, of which `raw` are the first ones. Raises
    SlotFileError."""
    try:
        magic, version, size, *_ = _HEAD.unpack_from(raw)
    except error as short:
        raise SlotFileError(NO_SLOT_FILE) from short
    if (magic, version) != (MAGIC, FORMAT):
        raise SlotFileError(NO_SLOT_FILE)
    if not _HEAD.size <= size <= MAX_HEADER_BYTES:
        raise SlotFileError(CHANGED)
    return int(size)


def decode_slot_header(raw: bytes, page_size: int) -> SlotHeader:
    """Reads a whole header. The hashes of its sequence are those of its tokens. Raises
    SlotFileError."""
    try:
        _, _, _, namespace, owner, root, n_ids, n_described, n = _HEAD.unpack_from(raw)
        at = _HEAD.size + _ID_BYTES * n_ids
        end = at + n_described + n * _RECORD.size
        if not n or _CRC.unpack_from(raw, end)[0] != crc32(raw[:end]):
            raise SlotFileError(CHANGED)
        ids = np.frombuffer(raw, "<i4", n_ids, _HEAD.size).astype(np.int32)
        media, adapters = _read_description(raw[at : at + n_described])
        begin = at + n_described
        found = [_RECORD.unpack_from(raw, begin + i * _RECORD.size) for i in range(n)]
    except (error, KeyError, TypeError, IndexError) as short:
        raise SlotFileError(CUT) from short
    sequence = CachedSequence(ids, root, (), media, adapters).with_hashes(page_size)
    pages = [(PageKey(page_hash, group), length, crc) for page_hash, group, length, crc in found]
    return make_slot_header(namespace, owner, sequence, pages)


def _describe(sequence: CachedSequence) -> bytes:
    media = [[each.digest.hex(), each.first, each.end] for each in sequence.media]
    adapters = [[each.label, each.digest.hex(), each.scale] for each in sequence.adapters]
    return json.dumps({"media": media, "adapters": adapters}).encode()


def _read_description(
    raw: bytes,
) -> tuple[tuple[PlaceholderRange, ...], tuple[Adapter, ...]]:
    try:
        described = json.loads(raw)
        media = tuple(
            PlaceholderRange(bytes.fromhex(digest), int(first), int(end))
            for digest, first, end in described["media"]
        )
        adapters = tuple(
            Adapter("", bytes.fromhex(digest), float(scale), str(name))
            for name, digest, scale in described["adapters"]
        )
    except ValueError as wrong:
        raise SlotFileError(CHANGED) from wrong
    return media, adapters
