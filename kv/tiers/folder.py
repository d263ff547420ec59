"""Owns a folder of bundles: what is in it, and that it stays within its budget.

Other processes may use the same folder. One of them evicts, elected by a lock. Nothing here is
synced: what a crash tears fails its checksum, and goes.
"""

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from kv.arrivals import PageKey
from kv.tiers.bundle import (
    ALIGNMENT,
    SUFFIX,
    BundleError,
    BundleHeader,
    Record,
    decode_header,
    owner_tag,
)
from kv.tiers.files import TierFiles
from kv.tiers.index import Bundle, BundleIndex

NAMESPACE = re.compile(r"[0-9a-f]{32}")  # names of folders
TEMPORARY = ".tmp"
MAX_TEMPORARY_AGE_S = 60.0  # nothing is written for so long
LOCK = "evictor.lock"


class BundleFolder:
    """The pages of one namespace that are in a folder of at most `max_bytes`, those of other ones
    counted. `read` and `close` may be called on any thread, what changes files on one other."""

    def __init__(
        self,
        path: Path,
        namespace: bytes,
        max_bytes: int,
        files: TierFiles | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.index = BundleIndex()
        self.n_corrupt = 0  # files that were no bundle, or not what they were
        self.namespace = namespace
        self._root, self._max_bytes = path, max_bytes
        self._own = namespace.hex()
        self._files, self._clock = files or TierFiles(), clock
        self._changing = threading.Lock()
        self._forgotten: set[str] = set()  # names of bundles that are to be removed
        self._lock: int | None = None

    def refresh(self) -> None:
        """Takes in what others have changed, removes what is left of bundles that were never
        whole, and evicts what is too much. Raises OSError."""
        self._files.make_folder(self._root / self._own)
        if self._lock is None:
            self._lock = self._files.lock(self._root / LOCK)
        found: set[str] = set()
        for entry in _all_files(self._root, self._files):
            with suppress(FileNotFoundError):
                self._see(f"{Path(entry.path).parent.name}/{entry.name}", entry, found)
        for bundle in self.index:
            if bundle.name not in found:
                self._lose(bundle)
        self.evict(self._max_bytes)

    def write(self, header: BundleHeader, image: memoryview, is_wanted: Callable[[], bool]) -> bool:
        """Writes a bundle, whose whole file is `image`. False if there is no room for it, or if it
        is not wanted when it is there. Raises OSError."""
        n_bytes = header.n_bytes
        name = f"{self._own}/{header.name}"
        if n_bytes > self._max_bytes or self.index.get(name) is not None:
            return False
        self.evict(self._max_bytes - n_bytes)
        if self.index.n_bytes + n_bytes > self._max_bytes:
            return False  # it is for another process to make room
        path = self._root / name
        temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
        try:
            self._files.write(temporary, [image[:n_bytes]])
            self._files.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                self._files.remove(temporary)
            raise
        bundle = Bundle(name, header.owner.hex(), n_bytes, self._clock(), header)
        with self._changing:
            if is_wanted():
                self.index.add(bundle)
        if self.index.get(name) is not bundle:
            self._files.remove(path)
            return False
        self._touch(bundle)
        return True

    def read(
        self,
        keys: Iterable[PageKey],
        buffer: memoryview,
        take: Callable[[PageKey, memoryview], bool],
    ) -> None:
        """Reads pages that are here by way of `buffer`, which holds the largest. `take` gets each,
        until it says False. What can't be read, or is not what it was, is here no more."""
        by_bundle: dict[Bundle, list[Record]] = {}
        for key in keys:
            if (place := self.index.lookup(key)) is not None:
                by_bundle.setdefault(place.bundle, []).append(place.record)
        for bundle, records in by_bundle.items():
            try:
                with self._files.reading(self._root / bundle.name) as descriptor:
                    for record in records:
                        page = self._read(descriptor, record, buffer)
                        if not take(record.key, page):
                            return
            except BundleError:
                self._discard(bundle.name)
            except OSError:
                self._lose(bundle)
            else:
                self._touch(bundle)

    def forget(self, hashes: Sequence[bytes]) -> list[str]:
        """No page with these hashes is here from now on. Returns the names of bundles that are to
        be removed by `remove`."""
        with self._changing:
            gone = self.index.with_pages(hashes)
            self._forgotten.update(bundle.name for bundle in gone)
            for bundle in gone:
                self.index.remove(bundle)
        return [bundle.name for bundle in gone]

    def remove(self, name: str) -> None:
        """Removes a bundle. Raises OSError."""
        self._files.remove(self._root / name)
        with self._changing:
            self._forgotten.discard(name)

    def evict(self, max_bytes: int) -> None:
        """Leaves `max_bytes` at most, where this is the process that evicts. Raises OSError."""
        if self._lock is None or self.index.n_bytes <= max_bytes:
            return
        for bundle in self.index.to_evict(max(0, max_bytes)):
            self._files.remove(self._root / bundle.name)
            self._lose(bundle)
            if bundle.header is None:
                self._files.remove_empty((self._root / bundle.name).parent)

    def close(self) -> None:
        """Lets another process evict."""
        lock, self._lock = self._lock, None
        if lock is not None:
            self._files.close(lock)

    def _see(self, name: str, entry: os.DirEntry[str], found: set[str]) -> None:
        """Takes in a file of a folder of bundles."""
        if name.endswith(TEMPORARY):
            if self._clock() - entry.stat().st_mtime > MAX_TEMPORARY_AGE_S:
                self._files.remove(self._root / name)
            return
        if not name.endswith(SUFFIX) or name in self._forgotten:
            return
        status = entry.stat(follow_symlinks=False)
        if (known := self.index.get(name)) is not None:
            known.used = max(known.used, status.st_mtime)
            found.add(name)
            return
        header = None
        if name.startswith(self._own) and (header := self._header(name, status.st_size)) is None:
            self._discard(name)
            return
        owner = entry.name.partition("-")[0]
        with self._changing:
            if name not in self._forgotten:
                self.index.add(Bundle(name, owner, status.st_size, status.st_mtime, header))
        found.add(name)

    def _header(self, name: str, n_bytes: int) -> BundleHeader | None:
        """The header of a bundle of this namespace that is whole; None for any other file."""
        raw = memoryview(bytearray(ALIGNMENT))
        with self._files.reading(self._root / name) as descriptor:
            n = self._files.read(descriptor, raw, 0)
        try:
            header = decode_header(bytes(raw[:n]))
        except BundleError:
            return None
        is_own = header.namespace == self.namespace and name == f"{self._own}/{header.name}"
        return header if is_own and header.n_bytes == n_bytes else None

    def _read(self, descriptor: int, record: Record, buffer: memoryview) -> memoryview:
        page = buffer[: record.length]
        n = self._files.read(descriptor, page, record.offset)
        if n < record.length or crc32(page) != record.crc:
            raise BundleError("a page is not what it was")
        return page

    def _discard(self, name: str) -> None:
        """A file that is no bundle, or not what it was, goes."""
        self.n_corrupt += 1
        if (bundle := self.index.get(name)) is not None:
            self._lose(bundle)
        with suppress(OSError):
            self._files.remove(self._root / name)

    def _lose(self, bundle: Bundle) -> None:
        with self._changing:
            self.index.remove(bundle)

    def _touch(self, bundle: Bundle) -> None:
        """Its chain is used now, for other processes too, and after a restart."""
        now = self._clock()
        with self._changing:
            touched = self.index.touch(bundle, now)
        for used in touched:
            with suppress(OSError):
                self._files.set_used(self._root / used.name, now)


def erase_owner(path: Path, owner: str, files: TierFiles | None = None) -> int:
    """Removes all that lies in a folder for an owner, of every model; returns how many files that
    were. A process that serves finds them no more. Raises OSError."""
    files, tag, n = files or TierFiles(), owner_tag(owner).hex(), 0
    for entry in _all_files(path, files):
        if entry.name.startswith(f"{tag}-"):
            files.remove(Path(entry.path))
            n += 1
    return n


def bytes_by_owner(path: Path, files: TierFiles | None = None) -> Counter[str]:
    """Bytes that lie in a folder, by the tags of their owners. Raises OSError."""
    found: Counter[str] = Counter()
    for entry in _all_files(path, files or TierFiles()):
        if entry.name.endswith(SUFFIX):
            found[entry.name.partition("-")[0]] += entry.stat().st_size
    return found


def _all_files(path: Path, files: TierFiles) -> Iterator[os.DirEntry[str]]:
    """Lists what is in the folders of all namespaces."""
    for folder in files.entries(path):
        if NAMESPACE.fullmatch(folder.name) and folder.is_dir(follow_symlinks=False):
            yield from files.entries(Path(folder.path))
