"""A folder of bundles: what is read is what was written, whatever fails; and it has its budget."""

import errno
import os
import stat
from itertools import count
from pathlib import Path

import pytest

from kv.arrivals import PageKey
from kv.tiers.__main__ import main
from kv.tiers.bundle import ALIGNMENT, owner_tag
from kv.tiers.folder import LOCK, bytes_by_owner
from tests.effort import tries
from tests.kv.tiers.bundles import OTHER, FailingFiles, chain, make, opened, read, write

FIRST, SECOND = chain(3, seed=1), chain(5, seed=2)


def files_in(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name != LOCK)


def test_what_was_written_is_found_after_a_restart_and_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "made" / "here"
    with opened(path) as folder:
        assert write(folder, FIRST)
        assert write(folder, SECOND[:2])
        assert write(folder, SECOND, 2)
        assert not write(folder, FIRST)  # it is there
    with opened(path) as folder:
        assert read(folder, FIRST) == FIRST
        assert read(folder, SECOND[1:]) == SECOND[1:]
        assert PageKey(FIRST[0], 1) not in folder.index
        assert len(folder.index) == 8
    for folder_path in (path, *{file.parent for file in files_in(path)}):
        assert stat.S_IMODE(folder_path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in files_in(path)} == {0o600}
    with opened(path, namespace=OTHER) as folder:
        assert not len(folder.index)
        assert folder.index.n_bytes > 0


@pytest.mark.parametrize("at", [0, 20, ALIGNMENT + 7, 2 * ALIGNMENT + 99])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_flipped_byte_is_a_miss_and_the_file_goes(
    tmp_path: Path, at: int, is_known: bool
) -> None:
    with opened(tmp_path) as folder:
        write(folder, FIRST)
        [file] = files_in(tmp_path)
        if is_known:
            read(folder, FIRST)
        raw = bytearray(file.read_bytes())
        raw[at] ^= 4
        file.write_bytes(raw)
        is_page = at >= ALIGNMENT
        if is_known and is_page:
            assert read(folder, FIRST) == FIRST[: at // ALIGNMENT - 1]
            assert (folder.n_corrupt, len(folder.index)) == (1, 0)
            assert not files_in(tmp_path)
    with opened(tmp_path) as folder:
        if files_in(tmp_path):
            assert read(folder, FIRST) == FIRST[: at // ALIGNMENT - 1]
            assert folder.n_corrupt == 1
        assert not len(folder.index)
        assert not files_in(tmp_path)


def test_what_is_torn_or_cut_or_no_bundle_goes_and_other_files_stay(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        write(folder, FIRST)
        write(folder, SECOND)
    cut, _ = files_in(tmp_path)
    os.truncate(cut, ALIGNMENT + 50)
    (cut.parent / "0-1.kv").write_bytes(b"something else")
    header, image = make(chain(2, seed=3), namespace=OTHER)
    (cut.parent / header.name).write_bytes(image)
    old, new = cut.parent / "0-2.kv.7.tmp", cut.parent / "0-3.kv.8.tmp"
    for temporary in (old, new):
        temporary.write_bytes(b"half of a")
    os.utime(old, (0, 0))
    others = [tmp_path / "thesis.kv", cut.parent / "thesis.txt"]
    for file in others:
        file.write_text("nobody's bundle")
    with opened(tmp_path) as folder:
        assert folder.n_corrupt == 3
        assert len(files_in(tmp_path)) == 4
        assert {*others, new} < {*files_in(tmp_path)}


def test_whatever_fails_is_a_miss(tmp_path: Path) -> None:
    """Each call of the system in turn."""
    for failing in count():
        path, files = tmp_path / str(failing), FailingFiles(failing)
        try:
            with opened(path, max_bytes=10 * ALIGNMENT, files=files) as folder:
                for hashes in (FIRST, SECOND, chain(3, seed=3)):
                    try:
                        write(folder, hashes)
                    except OSError:
                        assert files.n_left < 0
                    assert {*read(folder, hashes)} <= {*hashes}
                folder.refresh()
        except OSError:
            assert files.n_left < 0
        with opened(path) as folder:
            for hashes in (FIRST, SECOND):
                assert read(folder, hashes) in ([], hashes)
            assert folder.n_corrupt == 0
        if files.n_left >= 0:
            break
    assert failing > 20


def test_a_process_that_is_killed_leaves_nothing_that_is_wrong(tmp_path: Path) -> None:
    for failing in range(3, 3 + tries(6, 50)):
        path = tmp_path / str(failing)
        child = os.fork()
        if not child:
            with opened(path, files=FailingFiles(failing, kills=True)) as folder:
                for seed in count():
                    write(folder, chain(4, seed))
        os.waitpid(child, 0)
        with opened(path) as folder:
            for seed in range(50):
                hashes = chain(4, seed)
                assert read(folder, hashes) in ([], hashes)
            assert folder.n_corrupt == 0
            assert write(folder, chain(2, seed=99))


def test_a_full_disk_raises_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    files = FailingFiles(10_000, errno.ENOSPC)
    with opened(tmp_path, files=files) as folder:
        write(folder, FIRST)
        files.n_left = 0
        with pytest.raises(OSError, match="No space"):
            write(folder, SECOND)
        assert len(files_in(tmp_path)) == 1
        assert write(folder, SECOND)


def test_who_writes_much_pushes_out_nobody_else(tmp_path: Path) -> None:
    budget = 20 * ALIGNMENT
    with opened(tmp_path, budget) as folder:
        assert write(folder, FIRST, owner="b")
        for seed in range(50):  # ten budgets, of 4 pages each
            assert write(folder, chain(3, 100 + seed), owner="a")
            assert folder.index.n_bytes <= budget
        assert read(folder, FIRST) == FIRST
        assert read(folder, chain(3, 149)) == chain(3, 149)
        held = {"a": 16 * ALIGNMENT, "b": 4 * ALIGNMENT}
        found = {owner_tag(owner).hex(): n_bytes for owner, n_bytes in held.items()}
        assert bytes_by_owner(tmp_path) == found
        tag, n_bytes = main([str(tmp_path)]).split("\n")[0].split()
        assert (tag, n_bytes) == (owner_tag("a").hex(), f"{held['a']}")
        assert main([str(tmp_path), "a"]) == "4 files removed"
        folder.refresh()
        assert [key.page_hash for key in folder.index._places] == FIRST


def test_one_process_evicts_and_the_others_wait_for_it(tmp_path: Path) -> None:
    budget = 8 * ALIGNMENT
    with opened(tmp_path, budget) as first:
        with opened(tmp_path, budget, namespace=OTHER) as second:
            assert write(first, FIRST)
            second.refresh()
            header, image = make(SECOND, namespace=OTHER)
            assert not second.write(header, memoryview(image), lambda: True)
            assert write(first, SECOND)
            assert not read(first, FIRST)
            first.close()
            second.refresh()
            assert second.write(header, memoryview(image), lambda: True)
            assert second.index.n_bytes <= budget
        first.refresh()
        assert not len(first.index)


def test_what_is_forgotten_is_not_found_again(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        write(folder, FIRST)
        write(folder, SECOND)
        names = folder.forget(FIRST[1:2])
        assert PageKey(FIRST[0]) not in folder.index
        folder.refresh()  # before the file is gone
        assert PageKey(FIRST[0]) not in folder.index
        for name in names:
            folder.remove(name)
        header, image = make(FIRST)
        assert not folder.write(header, memoryview(image), lambda: False)
        assert len(files_in(tmp_path)) == 1
