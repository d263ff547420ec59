"""Small bundles, folders of them, and what goes wrong with files."""

import errno
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from kv.arrivals import PageKey
from kv.content import page_hashes
from kv.tiers.bundle import (
    ALIGNMENT,
    NO_PARENT,
    BundleHeader,
    aligned,
    make_header,
    owner_tag,
)
from kv.tiers.files import TierFiles
from kv.tiers.folder import BundleFolder

NAMESPACE, OTHER = b"n" * 16, b"o" * 16
PAGE = 100  # bytes
MIB = 1 << 20


def chain(n: int, seed: int = 0) -> list[bytes]:
    """Hashes of `n` pages."""
    return page_hashes([seed] * n, 1)


def content(page_hash: bytes) -> bytes:
    """Returns what a page with this hash holds."""
    return (page_hash * PAGE)[:PAGE]


def make(
    hashes: Sequence[bytes], first: int = 0, owner: str = "", namespace: bytes = NAMESPACE
) -> tuple[BundleHeader, bytearray]:
    """A bundle of a chain's pages from number `first` on, and its file."""
    pages = [(PageKey(page), PAGE, crc32(content(page))) for page in hashes[first:]]
    parent = hashes[first - 1] if first else NO_PARENT
    header = make_header(namespace, owner_tag(owner), parent, first, pages)
    image = bytearray(header.encode()) + b"".join(
        content(page).ljust(aligned(PAGE), b"\0") for page in hashes[first:]
    )
    return header, image


def write(folder: BundleFolder, hashes: Sequence[bytes], first: int = 0, owner: str = "") -> bool:
    header, image = make(hashes, first, owner)
    return folder.write(header, memoryview(image), lambda: True)


def read(folder: BundleFolder, hashes: Sequence[bytes]) -> list[bytes]:
    """The hashes of the pages that can be read. Asserts that each holds what it should."""
    found: list[bytes] = []

    def take(key: PageKey, page: memoryview) -> bool:
        assert bytes(page) == content(key.page_hash), "a wrong page"
        found.append(key.page_hash)
        return True

    folder.read([PageKey(page) for page in hashes], memoryview(bytearray(PAGE)), take)
    return found


@contextmanager
def opened(
    path: Path, max_bytes: int = MIB, files: TierFiles | None = None, namespace: bytes = NAMESPACE
) -> Iterator[BundleFolder]:
    """A folder as a process finds it that starts."""
    folder = BundleFolder(path, namespace, max_bytes, files)
    try:
        folder.refresh()
        yield folder
        folder.index.check()
    finally:
        folder.close()


class FailingFiles(TierFiles):
    """The system's files; call number `failing` of them fails, or kills the process. A write that
    fails has written a half."""

    def __init__(self, failing: int, code: int = errno.EIO, *, kills: bool = False) -> None:
        self.n_left, self._code, self._kills = failing, code, kills

    def _step(self) -> None:
        self.n_left -= 1
        if self.n_left == -1:
            self.fail()

    def fail(self) -> None:
        if self._kills:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self._code, os.strerror(self._code))

    def make_folder(self, path: Path) -> None:
        self._step()
        super().make_folder(path)

    def entries(self, path: Path) -> "list[os.DirEntry[str]]":
        self._step()
        return [*super().entries(path)]

    @contextmanager
    def reading(self, path: Path) -> Iterator[int]:
        self._step()
        with super().reading(path) as descriptor:
            yield descriptor

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        self._step()
        return super().read(descriptor, buffer, offset)

    def write(self, path: Path, pieces: Sequence[bytes | memoryview]) -> None:
        self.n_left -= 1
        if self.n_left == -1:
            super().write(path, [memoryview(piece)[: len(piece) // 2] for piece in pieces])
            self.fail()
        super().write(path, pieces)

    def write_at(self, descriptor: int, piece: bytes | memoryview, offset: int) -> None:
        self._step()
        super().write_at(descriptor, piece, offset)

    def rename(self, path: Path, to: Path) -> None:
        self._step()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def set_used(self, path: Path, when: float) -> None:
        self._step()
        super().set_used(path, when)

    def lock(self, path: Path) -> int | None:
        self._step()
        return super().lock(path)


assert aligned(PAGE) == ALIGNMENT
