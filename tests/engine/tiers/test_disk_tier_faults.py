"""Faults of disks and processes that last: every start serves, and no token is wrong."""

import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from deployments.engine import build_tiers
from deployments.engine.needs import kv_tier
from kv.tiers import fetches, folder
from kv.tiers.files import TierFiles
from tests.engine.drive import PATIENCE_S, Engine, Outcome, engine, random_ids, request, roomy
from tests.engine.tiers.test_disk_tier import REQUESTS, hanging, kept

N_KILLS = 50
N_NEW = 4  # prompts of a start behind those that earlier ones may have written
LIMITS = roomy(n_pages=256, page_size=8)


class KillingFiles(TierFiles):
    """The process dies in the midst of write number `last` behind its first answer."""

    def __init__(self, last: int) -> None:
        self._n_left = last
        self.has_answered = threading.Event()

    def write(self, path: Path, pieces: Sequence[bytes | memoryview]) -> None:
        self._n_left -= self.has_answered.is_set()
        if self._n_left < 0:
            super().write(path, [memoryview(piece)[: len(piece) // 2] for piece in pieces])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(path, pieces)


def answer(running: Engine, seed: int) -> Outcome:
    [outcome] = running.run(request(f"r{seed}", random_ids(300, seed=seed), max_tokens=4))
    assert outcome.error is None
    return outcome


def serve_until_killed(path: Path, seeds: Sequence[int], last: int, told: Connection) -> None:
    """Tells answers as they come, and dies."""
    patch, files = pytest.MonkeyPatch(), KillingFiles(last)
    patch.setattr(build_tiers, "BundleFolder", partial(folder.BundleFolder, files=files))
    for name in ("GRACE_S", "OPEN_S"):
        patch.setattr(kv_tier, name, PATIENCE_S)
    with engine(limits=replace(LIMITS, cache_disk=str(path))) as running:
        for seed in seeds:
            outcome = answer(running, seed)
            told.send((seed, outcome.token_ids, outcome.cached_tokens))
            files.has_answered.set()
        threading.Event().wait()  # what is still to be written kills it


def told_by(
    process: multiprocessing.process.BaseProcess, told: Connection
) -> Iterator[tuple[int, tuple[int, ...], int]]:
    try:
        while True:
            yield told.recv()
    except EOFError:
        process.join(PATIENCE_S)
        assert process.exitcode == -signal.SIGKILL


@pytest.mark.exhaustive
def test_a_process_that_is_killed_in_mid_write_leaves_no_wrong_token(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with engine(limits=LIMITS) as running:
        expected = [answer(running, seed).token_ids for seed in range(N_KILLS + N_NEW)]
    n_cached = 0
    for start in range(N_KILLS):
        asked = range(max(0, start - 2), start + N_NEW)  # the first ones may be found
        mine, theirs = context.Pipe(duplex=False)
        arguments = tmp_path, asked, start % 2, theirs
        process = context.Process(target=serve_until_killed, args=arguments)
        process.start()
        theirs.close()
        answers = [*told_by(process, mine)]
        assert answers, "a start that served nothing"
        assert all(ids == expected[seed] for seed, ids, _ in answers)
        n_cached += sum(n for _, _, n in answers)
    assert n_cached > 0


def test_a_disk_that_hung_is_read_again_once_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = REQUESTS
    with engine(limits=kept(tmp_path)) as running:
        expected = running.run(first, second)
    for name, seconds in {"GRACE_S": 0.05, "OPEN_S": PATIENCE_S}.items():
        monkeypatch.setattr(kv_tier, name, seconds)
    with hanging(tmp_path, monkeypatch) as (running, files):
        running.run(request("short", (1, 2)))
        files.hang()
        [given_up] = running.run(first)
        assert given_up.token_ids == expected[0].token_ids
        assert given_up.cached_tokens == 0
        files.may_go_on.set()
        monkeypatch.setattr(fetches, "RATE_AGE_S", 0.0)  # how slow it was is long ago
        monkeypatch.setattr(kv_tier, "GRACE_S", PATIENCE_S)
        while any(not fetch.is_done for fetch in running.core.cache.tier._meter._under_way):  # type: ignore[attr-defined]
            running.run(request("short", (1, 2)))
        [found] = running.run(second)
    assert found.token_ids == expected[1].token_ids
    assert found.cached_tokens == len(second.prompt_ids) // 8 * 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter of a MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.exhaustive
def test_a_full_disk_costs_no_answer(small_disk: Path) -> None:
    with engine(limits=LIMITS) as running:
        expected = [answer(running, seed).token_ids for seed in range(8)]
    for _ in range(2):
        with engine(limits=replace(LIMITS, cache_disk=str(small_disk))) as running:
            assert [answer(running, seed).token_ids for seed in range(8)] == expected
        left = [file.name for file in small_disk.rglob("*") if file.is_file()]
        assert not any(name.endswith(folder.TEMPORARY) for name in left)
