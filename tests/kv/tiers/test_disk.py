"""The tier on a disk under a cache: what comes back is what was there, bit by bit."""

import errno
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from kv.cache import KVCache
from kv.content import page_hashes
from kv.layout import LayerShape
from kv.shape import CacheShape
from kv.tiers import write_behind
from kv.tiers.disk import PAUSE_S, DiskTier, are_finite
from kv.tiers.folder import BundleFolder
from kv.tiers.index import Bundle
from kv.tiers.write_behind import N_IMAGES
from tests.kv.tiers.bundles import MIB, NAMESPACE, FailingFiles

TOKENS = [*range(40)]
HASHES = page_hashes(TOKENS, 4)
LAYOUT = (LayerShape(2, 8), LayerShape(2, 8, 6))  # a window beside full attention
PATIENCE_S = 120.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """A cache and its tier, as a process has them."""

    def __init__(self, path: Path, files: FailingFiles | None = None) -> None:
        shape = CacheShape(layout=LAYOUT, n_pages=40, page_size=4, max_tasks=2, max_tokens=64)
        self.cache, self.clock = KVCache(shape, dtype=torch.bfloat16), Clock()
        folder = BundleFolder(path, NAMESPACE, MIB, files)
        known, storage = self.cache.pool.prefix_cache, self.cache.storage
        self.tier = DiskTier(known, storage, folder, 1e9, self.clock)
        self.cache.tier = self.tier
        self.woken = threading.Semaphore(0)
        self.tier.start(self.woken.release)
        assert self.tier.is_open.wait(PATIENCE_S)

    def compute(self, hashes: list[bytes], *, broken: bool = False, owner: str | None = "") -> None:
        """Leaves pages behind that hold random numbers."""
        assert self.cache.allocate("task", [], len(hashes) * 4 + 1, 0)
        self.tier.charge("task", owner)
        self.go_on("task", hashes, broken=broken)
        self.cache.free("task")
        self.cache.check()

    def go_on(self, task_id: str, hashes: list[bytes], *, broken: bool = False) -> None:
        """A task computes its pages with these hashes: random numbers."""
        first = self.cache.table.n_pages(task_id)
        assert self.cache.extend(task_id, len(hashes) * 4)
        raw = self.cache.storage.raw_pages()
        for index in range(first, len(hashes)):
            for group in range(2):
                numbers = torch.randn(raw.shape[1] // 2, dtype=torch.bfloat16)
                if broken:
                    numbers[3] = torch.inf
                raw[self.cache.table.page(task_id, index, group)] = numbers.view(torch.uint8)
        self.cache.record(task_id, first, hashes[first:])

    def pages(self, hashes: list[bytes]) -> dict[tuple[int, int], bytes]:
        """Returns what is cached of some pages, by their numbers and groups."""
        found = {}
        for index, page_hash in enumerate(hashes):
            for group in range(2):
                page = self.cache.pool.prefix_cache.lookup(page_hash, group)
                if page is not None:
                    length = self.cache.storage.group_bytes(group)
                    found[index, group] = self.cache.storage.raw_pages()[page, :length].tobytes()
        return found

    def restore(self, hashes: list[bytes]) -> None:
        _, n, keys = self.cache.lacking(hashes, self.tier)
        fetch = self.tier.fetch(self.cache.begin_arrival(hashes[:n], keys))
        while not fetch.is_done:
            assert self.woken.acquire(timeout=PATIENCE_S)
        self.cache.end_arrival(fetch.arrival)
        self.cache.check()

    def bundles(self) -> list[Bundle]:
        """Returns what it has written, first pages first."""
        return sorted(self.tier._index, key=lambda bundle: -bundle.order[1])

    def leave(self) -> None:
        """Writes what is left, and ends."""
        self.tier.flush(PATIENCE_S)
        self.tier.close()


def test_pages_come_back_as_they_were(tmp_path: Path) -> None:
    first = Disk(tmp_path)
    first.compute(HASHES)
    before = first.pages(HASHES)
    assert len(before) == 20
    first.leave()
    assert first.tier.n_written > 0
    second = Disk(tmp_path)
    second.restore(HASHES)
    found = second.pages(HASHES)
    assert {index for index, group in found if group == 0} == {*range(10)}
    assert {index for index, group in found if group == 1} == {8, 9}  # in the window
    assert found.items() <= before.items()
    assert second.cache.allocate("again", HASHES, 41, 0)
    assert second.cache.cached_tokens("again") == 40
    second.cache.free("again")
    second.leave()


def test_what_is_not_finite_is_not_written(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.compute(HASHES, broken=True)
    disk.leave()
    assert (disk.tier.n_written, disk.tier.n_dropped > 0) == (0, True)
    raw = np.array([1, np.nan, 2, np.inf], dtype=np.float32).view(np.uint8)
    for parts in ([(torch.float32, 8)], [(torch.float32, 4), (torch.int32, 8), (torch.float32, 4)]):
        assert not are_finite(raw, parts)
        assert are_finite(raw, [(torch.float32, 4), (torch.int64, 8)])


def test_what_waits_for_a_disk_that_hangs_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "MAX_RUNS", 2)
    disk = Disk(tmp_path)
    images = [disk.tier.images.get() for _ in range(N_IMAGES)]  # as if they were being written
    dropped = []
    for seed in range(3):
        disk.compute(page_hashes([seed] * 12, 4))
        assert not disk.tier.copy(MIB)
        dropped.append(disk.tier.n_dropped)
    assert dropped == [0, 0, 3 * sum(disk.cache.storage.group_bytes(group) for group in range(2))]
    for image in images:
        disk.tier.images.put(image)
    disk.leave()
    assert disk.tier.n_written > 0


def test_a_prompt_is_written_once_it_is_computed_and_an_answer_when_it_has_ended(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    assert disk.cache.allocate("task", [], 41, 0)
    disk.tier.charge("task", "", 4)
    for n_pages, is_dirty in ((3, False), (4, True), (7, False)):
        disk.go_on("task", HASHES[:n_pages])
        assert not disk.tier.copy(0) or is_dirty
        assert disk.tier.is_dirty == is_dirty
        disk.tier.copy(MIB)
        disk.cache.check()
    disk.cache.free("task")
    disk.leave()
    headers = [bundle.header for bundle in disk.bundles()]
    assert [len(header.records) for header in headers if header] == [8, 6]


def test_what_is_dirty_is_taken_last_and_is_copied_before(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    dirty, clean = (page_hashes([seed] * 40, 4) for seed in range(2))
    disk.compute(dirty)
    disk.compute(clean, owner=None)
    before = disk.pages(dirty)
    assert disk.cache.allocate("next", [], 21, 0)
    assert disk.cache.extend("next", 20)
    assert disk.pages(dirty) == before
    assert disk.pages(clean).keys() == {(n, group) for n in range(5) for group in range(2)}
    taken = disk.cache.pool.coldest(5)
    disk.tier.rescue(taken, disk.clock.now)  # there is no time
    assert disk.cache.extend("next", 40)
    assert disk.tier.n_dropped == 0
    disk.tier.rescue(taken, disk.clock.now + 1)
    assert disk.tier.is_dirty  # no more is copied
    assert disk.cache.allocate("last", [], 9, 0)
    assert disk.cache.extend("last", 8)
    assert disk.tier.n_dropped == 0
    assert disk.pages(dirty).keys() == {(n, group) for n in range(8) for group in range(2)}
    for task_id in ("next", "last"):
        disk.cache.free(task_id)
    disk.leave()
    second = Disk(tmp_path)
    second.restore(dirty)
    assert before.items() >= second.pages(dirty).items() > {}.items()
    second.leave()


def test_a_full_disk_is_let_alone_for_a_while_and_makes_room(tmp_path: Path) -> None:
    files = FailingFiles(10**6, errno.ENOSPC)
    disk = Disk(tmp_path, files)
    chains = [page_hashes([seed] * 40, 4) for seed in range(4)]

    def keep(hashes: list[bytes]) -> None:
        disk.compute(hashes)
        disk.tier.copy(MIB)
        images = [disk.tier.images.get(timeout=PATIENCE_S) for _ in range(N_IMAGES)]
        for image in images:  # none is used: all was written, or was not to be
            disk.tier.images.put(image)

    keep(chains[0])
    n_written = disk.tier.n_written
    files.n_left = 0
    keep(chains[1])  # fails
    assert disk.tier.n_bytes == 0  # the only bundle made room
    keep(chains[2])  # is not tried
    assert disk.tier.n_written == n_written
    disk.clock.now += PAUSE_S
    keep(chains[3])
    assert disk.tier.n_written == 2 * n_written
    disk.leave()
