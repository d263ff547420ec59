"""Slot files: what is read is what was written, or it is refused."""

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from kv.arrivals import PageKey
from kv.content import Adapter, Content, PlaceholderRange, page_hashes
from kv.tiers.__main__ import main
from kv.tiers.bundle import ALIGNMENT, aligned, owner_tag
from kv.tiers.files import TierFiles
from kv.tiers.slot_file import (
    CachedSequence,
    NoRoomError,
    SlotFileError,
    header_bytes,
    make_slot_header,
)
from kv.tiers.slot_folder import SlotFolder
from tests.kv.tiers.bundles import MIB, NAMESPACE, OTHER, PAGE, FailingFiles, content

SIZE = 4  # tokens of a page
IDS = [5, 6, 7, 8, 1, 2, 3, 4, 9, 9, 9, 9]
SEEN = Content(
    "salt",
    (Adapter("/a", b"digest", 0.5, "polite"),),
    (PlaceholderRange(b"picture", 2, 6), PlaceholderRange(b"sound", 9, 11)),
)
HASHES = page_hashes(IDS, SIZE, SEEN)
SEQUENCE = CachedSequence(
    np.array(IDS, dtype=np.int32), SEEN.root(), HASHES, SEEN.media, SEEN.adapters
)
N_BYTES = header_bytes(SEQUENCE, 3) + 3 * aligned(PAGE)


def opened(path: Path, namespace: bytes = NAMESPACE, files: TierFiles | None = None) -> SlotFolder:
    return SlotFolder(path, namespace, SIZE, MIB, files)


def write(folder: SlotFolder, name: str = "a", owner: str = "") -> None:
    keys = [PageKey(page_hash) for page_hash in HASHES]
    pages = [(key, PAGE, crc32(content(key.page_hash))) for key in keys]
    header = make_slot_header(NAMESPACE, owner_tag(owner), SEQUENCE, pages)
    assert header.n_bytes == N_BYTES
    with folder.writing(owner, name, N_BYTES) as put:
        for record in header.records:
            put(content(record.key.page_hash).ljust(aligned(PAGE), b"\0"), record.offset)
        put(header.encode(), 0)


def read(folder: SlotFolder, name: str = "a", owner: str = "") -> Sequence[int]:
    """The tokens. Asserts that all else is as it was written."""
    with folder.reading(owner, name) as file:
        for (key, page), page_hash in zip(file.pages(), HASHES, strict=True):
            assert key == PageKey(page_hash)
            assert bytes(page) == content(page_hash)
        found = file.header.sequence
    assert found.hashes == HASHES
    assert (found.media, found.adapters) == (SEEN.media, SEEN.adapters)
    assert [adapter.label for adapter in found.adapters] == ["polite"]
    ids: list[int] = found.token_ids.tolist()
    return ids


def file_of(path: Path, owner: str = "", name: str = "a") -> Path:
    return path / owner_tag(owner).hex() / name


def files_in(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def test_a_file_says_what_was_written_to_its_owner_alone(tmp_path: Path) -> None:
    folder = opened(tmp_path / "new")
    write(folder, owner="anna")
    assert read(folder, owner="anna") == IDS
    file = file_of(tmp_path / "new", "anna")
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]
    with pytest.raises(SlotFileError, match="no such file"):
        read(folder, owner="ben")
    file.parent.rename(file_of(tmp_path / "new", "ben").parent)
    with pytest.raises(SlotFileError, match="another owner"):
        read(folder, owner="ben")
    with pytest.raises(SlotFileError, match="another model"):
        read(opened(tmp_path / "new", OTHER), owner="ben")
    for name in ("../a", "a/b", "", "..", "a\0"):
        with pytest.raises(SlotFileError, match="no name"):
            write(folder, name)


def test_a_changed_bit_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    write(folder)
    file = file_of(tmp_path)
    whole, n_header = file.read_bytes(), N_BYTES - 3 * aligned(PAGE)
    n_said = len(whole[:n_header].rstrip(b"\0"))
    in_pages = [n_header + page * aligned(PAGE) + at for page in range(3) for at in (0, 99)]
    for at in [*range(0, n_said, 3), *in_pages, n_header - 1, n_header + PAGE]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if at in (n_header - 1, n_header + PAGE):  # between pages
            assert read(folder) == IDS
        else:
            with pytest.raises(SlotFileError):
                read(folder)
    for n in (0, 3, 40, 100, 300, ALIGNMENT, len(whole) - 1):
        file.write_bytes(whole[:n])
        with pytest.raises(SlotFileError):
            read(folder)
    for other in (whole + b"\0", bytes(len(whole)), b"something else" * 900):
        file.write_bytes(other)
        with pytest.raises(SlotFileError):
            read(folder)


def test_whatever_fails_leaves_the_file_before_it_and_no_other_one(tmp_path: Path) -> None:
    """Each call of the system in turn."""
    for failing in count():
        path, files = tmp_path / str(failing), FailingFiles(1 << 30)
        folder = opened(path, files=files)
        write(folder)
        before = file_of(path).read_bytes()
        files.n_left = failing
        try:
            write(folder)
            read(folder)
        except OSError:
            assert files.n_left < 0
            assert [file.read_bytes() for file in files_in(path)] == [before]
            assert read(opened(path)) == IDS
        else:
            break
    assert failing > 5


def test_an_owner_has_a_budget_in_which_a_file_takes_the_place_of_one(tmp_path: Path) -> None:
    folder = SlotFolder(tmp_path, NAMESPACE, SIZE, 2 * N_BYTES)
    for name in ("a", "b", "b"):
        write(folder, name)
    with pytest.raises(NoRoomError, match="`slot-save-mib`"):
        write(folder, "c")
    write(folder, "c", owner="ben")
    tags = owner_tag("").hex(), owner_tag("ben").hex()
    assert main([str(tmp_path)]) == f"{tags[0]} {2 * N_BYTES}\n{tags[1]} {N_BYTES}"
    assert main([str(tmp_path), ""]) == "2 files removed"
    assert main([str(tmp_path), ""]) == "0 files removed"
    assert files_in(tmp_path) == [file_of(tmp_path, "ben", "c")]


def test_what_was_never_whole_goes_and_other_files_stay(tmp_path: Path) -> None:
    folder, tag = opened(tmp_path), owner_tag("").hex()
    old, new = tmp_path / f"{tag}.5.0.tmp", tmp_path / f"{tag}.5.1.tmp"
    others = [tmp_path / "thesis.tmp", tmp_path / f"{tag}.txt"]
    for file in (old, new, *others):
        file.write_text("half of a")
    for file in (old, *others):
        os.utime(file, (0, 0))
    folder.clean()
    assert files_in(tmp_path) == sorted([new, *others])
