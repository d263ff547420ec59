"""Owns a folder of slot files: one folder in it for each owner, and a budget for each.

Nothing here is synced: what a crash tears fails its checksum, and is refused.
"""

import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from kv.arrivals import PageKey
from kv.tiers.bundle import ALIGNMENT, OWNER_BYTES, owner_tag
from kv.tiers.files import TierFiles
from kv.tiers.folder import MAX_TEMPORARY_AGE_S, TEMPORARY
from kv.tiers.slot_file import (
    CHANGED,
    CUT,
    NoRoomError,
    SlotFileError,
    SlotHeader,
    decode_slot_header,
    read_header_bytes,
)

OWNER = re.compile(rf"[0-9a-f]{{{2 * OWNER_BYTES}}}")  # names of folders
OWN_TEMPORARY = re.compile(rf"[0-9a-f]{{{2 * OWNER_BYTES}}}\.\d+\.\d+{re.escape(TEMPORARY)}")
Write = Callable[[bytes | memoryview, int], None]  # what, and at which offset


class SlotFolder:
    """The slot files of all models under `path`, of which those of one namespace can be read.
    Any thread may call the methods. Each owner may have `max_bytes`."""

    def __init__(
        self,
        path: Path,
        namespace: bytes,
        page_size: int,
        max_bytes: int,
        files: TierFiles | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.namespace = namespace
        self._root, self._page_size, self._max_bytes = path, page_size, max_bytes
        self._files, self._clock = files or TierFiles(), clock
        self._numbers = itertools.count()

    def clean(self) -> None:
        """Removes what is left of files that were never whole. Raises OSError."""
        self._files.make_folder(self._root)
        for entry in self._files.entries(self._root):
            with suppress(FileNotFoundError):
                age = self._clock() - entry.stat(follow_symlinks=False).st_mtime
                if OWN_TEMPORARY.fullmatch(entry.name) and age > MAX_TEMPORARY_AGE_S:
                    self._files.remove(Path(entry.path))

    @contextmanager
    def writing(self, owner: str, name: str, n_bytes: int) -> Iterator[Write]:
        """A new file of an owner, which has its name once the block has ended, in the place of one
        that has it. Raises NoRoomError where the owner has no room for `n_bytes`, SlotFileError
        for what is no name, OSError."""
        tag = owner_tag(owner).hex()
        path = self._path(owner, name)
        self._files.make_folder(path.parent)
        others = (entry for entry in self._files.entries(path.parent) if entry.name != name)
        used = sum(entry.stat(follow_symlinks=False).st_size for entry in others)
        if used + n_bytes > self._max_bytes:
            raise NoRoomError(
                f"it takes {n_bytes:,} bytes, and your other files {used:,} of {self._max_bytes:,} "
                "(`slot-save-mib`)"
            )
        temporary = self._root / f"{tag}.{os.getpid()}.{next(self._numbers)}{TEMPORARY}"
        try:
            with self._files.writing(temporary) as descriptor:
                yield lambda piece, offset: self._files.write_at(descriptor, piece, offset)
            self._files.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                self._files.remove(temporary)
            raise

    @contextmanager
    def reading(self, owner: str, name: str) -> Iterator["SlotReader"]:
        """A file of an owner. Raises SlotFileError for one that is not what it should be, OSError
        for one that can't be read."""
        path = self._path(owner, name)
        try:
            with self._files.reading(path) as descriptor:
                yield SlotReader(self._files, descriptor, self._header(descriptor, owner))
        except FileNotFoundError as error:
            raise SlotFileError("there is no such file") from error

    def _path(self, owner: str, name: str) -> Path:
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise SlotFileError("this is no name of a file")
        return self._root / owner_tag(owner).hex() / name

    def _header(self, descriptor: int, owner: str) -> SlotHeader:
        size = self._files.size(descriptor)
        n_bytes = read_header_bytes(self._read(descriptor, min(size, ALIGNMENT)))
        if n_bytes > size:
            raise SlotFileError(CUT)
        header = decode_slot_header(self._read(descriptor, n_bytes), self._page_size)
        if header.namespace != self.namespace:
            raise SlotFileError("another model saved it, or another version or setting of it")
        if header.owner != owner_tag(owner):
            raise SlotFileError("another owner saved it")
        if header.n_bytes != size:
            raise SlotFileError(CUT)
        hashes = {*header.sequence.hashes}
        if any(record.key.page_hash not in hashes for record in header.records):
            raise SlotFileError(CHANGED)
        return header

    def _read(self, descriptor: int, n_bytes: int) -> bytes:
        raw = bytearray(n_bytes)
        return bytes(raw[: self._files.read(descriptor, memoryview(raw), 0)])


class SlotReader:
    """A file that is open, and its header."""

    def __init__(self, files: TierFiles, descriptor: int, header: SlotHeader) -> None:
        self._files, self._descriptor = files, descriptor
        self.header = header

    def pages(self) -> Iterator[tuple[PageKey, memoryview]]:
        """Yields each page, in memory that the next one takes. Raises SlotFileError at one that is
        not what it was, OSError."""
        records = self.header.records
        buffer = memoryview(bytearray(max(record.length for record in records)))
        for record in records:
            page = buffer[: record.length]
            n = self._files.read(self._descriptor, page, record.offset)
            if n < record.length or crc32(page) != record.crc:
                raise SlotFileError(CHANGED)
            yield record.key, page


def erase_slots(path: Path, owner: str, files: TierFiles | None = None) -> int:
    """Removes all slot files of an owner in a folder; returns how many that were. Raises
    OSError."""
    files, own = files or TierFiles(), path / owner_tag(owner).hex()
    found = [*files.entries(own)] if own.is_dir() else []
    for entry in found:
        files.remove(Path(entry.path))
    files.remove_empty(own)
    return len(found)


def slot_bytes_by_owner(path: Path, files: TierFiles | None = None) -> Counter[str]:
    """Bytes of slot files in a folder, by the tags of their owners. Raises OSError."""
    found: Counter[str] = Counter()
    files = files or TierFiles()
    for folder in files.entries(path):
        if OWNER.fullmatch(folder.name) and folder.is_dir(follow_symlinks=False):
            sizes = (entry.stat().st_size for entry in files.entries(Path(folder.path)))
            found[folder.name] = sum(sizes)
    return found
