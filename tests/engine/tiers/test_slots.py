"""Slots in files: what is restored was saved whole by the same owner and model, or is refused."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.slots import MAX_SLOTS, SlotAction, SlotVerb
from deployments.engine import build_tiers
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.fingerprint import WeightsIdentity
from deployments.engine.needs.slots import slot_actions, slot_cache
from deployments.engine.needs.slots.slot_table import SEQUENCE_TOKENS, SlotTable
from deployments.model.settings import ModelSettings, check_settings
from kv.content import PLAIN, page_hashes
from kv.tiers.bundle import ALIGNMENT, owner_tag
from kv.tiers.files import TierFiles
from kv.tiers.slot_file import CachedSequence
from kv.tiers.slot_folder import SlotFolder
from tests.adapters import make_adapter
from tests.engine import laws
from tests.engine.drive import Engine, engine, random_ids, request, roomy
from tests.engine.laws import act
from tests.engine.media.seeing import language_model, picture, seeing
from tests.engine.test_laws_layers import needs_states
from tests.engine.workload import Workload
from tests.models import tiny_model

LIMITS = roomy(n_pages=256, page_size=8)
PROMPT = random_ids(100, seed=1)
FIRST = replace(request("first", PROMPT, max_tokens=6), id_slot=1)
N_SAVED = 104  # of 105 computed ones
REQUESTS = [request(f"r{i}", random_ids(50 + 9 * i, seed=i), max_tokens=6) for i in range(2)]


# Full attention, windows beside it, latents.
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "deepseek_v3"])
def test_a_saved_slot_is_computed(tmp_path: Path, architecture: str) -> None:
    model = partial(tiny_model, architecture)
    laws.a_saved_slot_is_computed(
        Workload(requests=REQUESTS, model=model, limits=LIMITS, tolerance=1e-3), tmp_path
    )


def test_a_saved_slot_is_computed_with_adapters(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", tiny_model(), seed=1)
    plain, _ = REQUESTS
    adapted = replace(plain, content=replace(plain.content, adapters=(adapter,)))
    both = Workload(requests=[plain, adapted], limits=replace(LIMITS, max_loras=2))
    laws.a_saved_slot_is_computed(both, tmp_path / "saved")
    assert "takes none" in refusal(
        lambda running: act(running, "restore", 0, "1.bin"), tmp_path / "saved"
    )


def test_a_saved_slot_is_computed_with_a_picture(tmp_path: Path) -> None:
    asked = seeing().request("r", "What is this? <image> Say it.", (picture(1),))
    seen = Workload(requests=[asked], model=language_model, limits=LIMITS)
    laws.a_saved_slot_is_computed(seen, tmp_path)


def saving(path: Path, **changes: float | str | None) -> EngineLimits:
    return replace(LIMITS, slot_save_path=str(path), **changes)  # type: ignore[arg-type]


@contextmanager
def saved(path: Path, **changes: float | str | None) -> Iterator[Engine]:
    """An engine that has served FIRST and saved its slot."""
    with engine(limits=saving(path, **changes)) as running:
        running.run(FIRST)
        assert act(running, "save", 1, "a.bin").n_tokens == N_SAVED
        yield running


def file_in(path: Path, owner: str = "") -> Path:
    return path / owner_tag(owner).hex() / "a.bin"


def files_in(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]


def refused_by(running: Engine, *action: object, kind: ErrorKind | None = None) -> str:
    """The message of an action that is refused. The accounts still agree."""
    with pytest.raises(Refused) as found:
        act(running, *action)  # type: ignore[arg-type]
    running.core.cache.check()
    assert found.value.error.kind is (kind or ErrorKind.INVALID_REQUEST)
    return str(found.value)


def refusal(what: Callable[[Engine], object], path: Path, **changes: object) -> str:
    """The message of a restore that an engine of its own refuses. It serves on, and found
    nothing."""
    options: dict[str, object] = {"limits": saving(path), **changes}
    with engine(**options) as running:  # type: ignore[arg-type]
        with pytest.raises(Refused) as found:
            what(running)
        running.core.cache.check()
        assert running.run(FIRST)[0].cached_tokens == 0
    return str(found.value)


@pytest.mark.parametrize("disk", [None, "disk"])
def test_a_slot_is_saved_goes_on_elsewhere_and_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str | None
) -> None:
    """Pages that are erased before a tier has written them are lost to it."""
    monkeypatch.setattr(slot_actions, "ERASED_BETWEEN_STEPS", 5)
    path = None if disk is None else str(tmp_path / disk)
    with saved(tmp_path, cache_disk=path) as running:
        size = file_in(tmp_path).stat().st_size
        other = replace(FIRST, prompt_ids=(*PROMPT[:40], *random_ids(60, seed=2)))
        assert running.run(other)[0].cached_tokens == 40
        restored = act(running, "restore", 0, "a.bin")
        assert (restored.n_tokens, restored.n_bytes) == (N_SAVED, size)
        assert running.run(FIRST)[0].cached_tokens == 96
        held = running.core.slots_of("")
        assert {number: slot.n_tokens for number, slot in held.items()} == {0: 104, 1: 105}
        assert running.core.slots_of("ben") == {}
        assert act(running, "erase", 1).n_tokens == 105
        assert running.run(FIRST)[0].cached_tokens == 96  # which slot 0 has
        for slot in (0, 1):
            assert act(running, "erase", slot).n_tokens > 0
        assert act(running, "erase", 0).n_tokens == 0
        running.core.cache.check()
        assert running.run(replace(FIRST, id_slot=-1))[0].cached_tokens == 0
        assert "no request with `id_slot` 1" in refused_by(running, "save", 1)
    assert file_in(tmp_path).stat().st_mode & 0o777 == 0o600
    assert file_in(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_what_there_is_not_can_not_be_saved(tmp_path: Path) -> None:
    with engine(limits=saving(tmp_path)) as running:
        running.run(replace(FIRST, prompt_ids=(1, 2), max_tokens=1))
        assert "2 tokens are less than a page of 8" in refused_by(running, "save", 1)
        running.run(replace(FIRST, is_kept=False))
        assert "`cache_prompt` false" in refused_by(running, "save", 1)
        running.run(FIRST)
        assert "no name of a file" in refused_by(running, "save", 1, "../a.bin")
        running.run(*(request(f"r{i}", random_ids(300, seed=i)) for i in range(2, 10)))
        assert "no longer in memory" in refused_by(running, "save", 1)
        running.run(FIRST)
        running.core.cache.storage.k[0].fill_(torch.nan)
        assert "not finite" in refused_by(running, "save", 1)
    assert not files_in(tmp_path)


def test_one_owner_neither_reads_nor_overwrites_what_another_one_saved(tmp_path: Path) -> None:
    anna, ben = (
        replace(FIRST, owner=owner, content=replace(FIRST.content, salt=owner), prompt_ids=ids)
        for owner, ids in (("anna", PROMPT), ("ben", PROMPT[::-1]))
    )
    with engine(limits=saving(tmp_path)) as running:
        running.run(anna)
        act(running, "save", 1, "a.bin", "anna")
        assert "no request with" in refused_by(running, "save", 1, "a.bin", "ben")
        assert "no such file" in refused_by(running, "restore", 1, "a.bin", "ben")
        running.run(ben)
        act(running, "save", 1, "a.bin", "ben")
    with engine(limits=saving(tmp_path)) as running:
        assert act(running, "restore", 1, "a.bin", "anna").n_tokens == N_SAVED
        assert running.run(ben)[0].cached_tokens == 0
        assert running.run(anna)[0].cached_tokens == 96
        os.replace(file_in(tmp_path, "anna"), file_in(tmp_path, "ben"))
        assert "another owner" in refused_by(running, "restore", 2, "a.bin", "ben")


def test_what_is_cut_changed_or_foreign_is_refused_by_name(tmp_path: Path) -> None:
    with saved(tmp_path) as running:
        file, whole = file_in(tmp_path), file_in(tmp_path).read_bytes()
        assert act(running, "erase", 1).n_tokens
        at = len(whole) // 2
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for content in (flipped, whole[:-1], b"something else" * 500):
            file.write_bytes(content)
            assert "Unable to restore slot: a.bin: " in refused_by(running, "restore", 1, "a.bin")
            assert running.core.slots_of("") == {}
            assert running.run(replace(FIRST, id_slot=-1, max_tokens=1))[0].cached_tokens == 0
            running.core.cache.sequences.discard(page_hashes(PROMPT, 8, PLAIN))
        file.unlink()
        file.symlink_to("/etc/passwd")
        assert "a.bin: Too many levels" in refused_by(running, "restore", 1, "a.bin")
        file.unlink()
        file.mkdir()
        assert "a.bin: Is a directory" in refused_by(running, "restore", 1, "a.bin")
        file.rmdir()
        file.write_bytes(whole)
        assert act(running, "restore", 1, "a.bin").n_tokens == N_SAVED


def test_another_model_or_layout_refuses_what_was_saved(tmp_path: Path) -> None:
    with saved(tmp_path):
        pass
    restore = partial(act, verb="restore", id_slot=1, filename="a.bin")
    for changes in (
        {"identity": WeightsIdentity(weights=("other weights",))},
        {"limits": saving(tmp_path, page_size=4)},
    ):
        assert "another model saved it" in refusal(restore, tmp_path, **changes)
    short = {"limits": saving(tmp_path, context_length=104)}
    with engine(**short) as running:  # type: ignore[arg-type]
        assert "do not fit in the context" in refused_by(running, "restore", 1, "a.bin")


def test_what_finds_little_room_is_restored_in_part_and_without_any_refused(
    tmp_path: Path,
) -> None:
    with saved(tmp_path) as running:
        act(running, "erase", 1)
        pool = running.core.cache.pool
        held = pool.allocate(pool.n_pages - 6) or []
        assert act(running, "restore", 1, "a.bin").n_tokens == 6 * 8
        held += pool.allocate(6) or []
        with pytest.raises(Refused, match="no room in memory"):
            act(running, "restore", 1, "a.bin")
        pool.free(held)
        running.core.cache.check()


def test_what_is_too_much_for_an_owner_is_not_saved(tmp_path: Path) -> None:
    with engine(limits=saving(tmp_path, slot_save_mib=1)) as running:
        running.run(FIRST)
        file_in(tmp_path).parent.mkdir(parents=True)
        file_in(tmp_path).with_name("b.bin").write_bytes(bytes(1 << 20))
        message = refused_by(running, "save", 1, "a.bin", kind=ErrorKind.STORAGE_FULL)
        assert "`slot-save-mib`" in message


class SlotFilesThatHang(TierFiles):
    """Reads and writes stand until they are let go."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.has_come = threading.Event()

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        self.has_come.set()
        self.may_go_on.wait()
        return super().read(descriptor, buffer, offset)

    def write_at(self, descriptor: int, piece: bytes | memoryview, offset: int) -> None:
        self.has_come.set()
        self.may_go_on.wait()
        super().write_at(descriptor, piece, offset)


@contextmanager
def hanging(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Engine, SlotFilesThatHang]]:
    files = SlotFilesThatHang()
    monkeypatch.setattr(build_tiers, "SlotFolder", partial(SlotFolder, files=files))
    with engine(limits=saving(path)) as running:
        try:
            yield running, files
        finally:
            files.may_go_on.set()


@pytest.mark.parametrize("verb", ["save", "restore"])
def test_no_stream_waits_for_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    with saved(tmp_path):
        pass
    with hanging(tmp_path, monkeypatch) as (running, files):

        async def run() -> None:
            await running.follow(FIRST)
            action = SlotAction(verb=SlotVerb(verb), owner="", id_slot=1, filename="a.bin")
            acting = asyncio.create_task(running.core.act_on_slot(action))
            await asyncio.to_thread(files.has_come.wait)
            stream = await running.follow(request("stream", (1, 2, 3), max_tokens=30))
            assert stream.outcome.error is None
            assert not acting.done()
            files.may_go_on.set()
            assert (await acting).n_tokens == N_SAVED

        asyncio.run(run())


def test_pages_that_are_taken_while_they_are_saved_are_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_cache, "COPIED_WHEN_IDLE", ALIGNMENT)
    with hanging(tmp_path, monkeypatch) as (running, files):

        async def run() -> None:
            await running.follow(FIRST)
            action = SlotAction(verb=SlotVerb.SAVE, owner="", id_slot=1, filename="a.bin")
            acting = asyncio.create_task(running.core.act_on_slot(action))
            await asyncio.to_thread(files.has_come.wait)
            for seed in range(2, 10):
                await running.follow(request("other", random_ids(300, seed=seed)))
            files.may_go_on.set()
            with pytest.raises(Refused, match="others took the memory"):
                await acting

        asyncio.run(run())
    assert not files_in(tmp_path)


def test_an_action_waits_for_the_request_that_uses_its_slot(tmp_path: Path) -> None:
    with engine(limits=saving(tmp_path)) as running:

        async def run() -> None:
            running.gate.close()
            using = asyncio.create_task(running.follow(FIRST))
            await asyncio.to_thread(running.gate.await_step)
            action = SlotAction(verb=SlotVerb.SAVE, owner="", id_slot=1, filename="a.bin")
            acting = asyncio.create_task(running.core.act_on_slot(action))
            leaving = asyncio.create_task(running.core.act_on_slot(action))
            await asyncio.sleep(0)
            leaving.cancel()
            running.gate.open()
            assert (await acting).n_tokens == N_SAVED
            assert (await using).finished

        asyncio.run(run())


def test_an_engine_that_ends_ends_the_actions_that_wait(tmp_path: Path) -> None:
    with engine(limits=saving(tmp_path)) as running:

        async def run() -> None:
            running.gate.close()
            using = asyncio.create_task(running.follow(FIRST))
            await asyncio.to_thread(running.gate.await_step)
            action = SlotAction(verb=SlotVerb.SAVE, owner="", id_slot=1, filename="a.bin")
            acting = [asyncio.create_task(running.core.act_on_slot(action)) for _ in range(17)]
            await asyncio.sleep(0)
            stopping = asyncio.create_task(asyncio.to_thread(running.core.shutdown))
            running.gate.open()
            ends = await asyncio.gather(*acting, return_exceptions=True)
            assert "Too many actions" in str(ends[-1])
            for end in ends[:-1]:
                assert not isinstance(end, BaseException) or "stops" in str(end)
            await asyncio.gather(stopping, using)
            with pytest.raises(Refused, match="stops"):
                await running.core.act_on_slot(action)

        asyncio.run(run())


def sequence(n: int) -> CachedSequence:
    return CachedSequence(np.arange(n, dtype=np.int32), PLAIN.root(), [])


def test_who_leaves_many_sequences_forgets_its_own() -> None:
    table = SlotTable(max_tokens=20 * (SEQUENCE_TOKENS + 1))
    table.put("anna", 5, sequence(1))
    for number in range(30):
        table.put("ben", number, sequence(1))
    assert table.get("anna", 5) is not None
    assert [*table.statuses("ben")] == [*range(11, 30)]
    table.put("ben", 29, sequence(100 * SEQUENCE_TOKENS))
    assert [*table.statuses("anna"), *table.statuses("ben")] == [5]
    many = SlotTable()
    for number in range(MAX_SLOTS + 5):
        many.put("", number, sequence(1))
    assert len(many) == MAX_SLOTS


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [({"num_gpus": 1.0}, "/kept", "on a CPU"), ({}, "kept", "begins with / or ~")],
)
def test_settings_that_can_not_be_kept_are_refused(
    changes: dict[str, float], path: str, reason: str
) -> None:
    limits = EngineLimits(slot_save_path=path)
    with pytest.raises(ValueError, match=f"slot-save-path: .*{reason}"):
        check_settings(ModelSettings(name="m", path="m", limits=limits, **changes))  # type: ignore[arg-type]


@needs_states
def test_states_are_refused_by_name(tmp_path: Path) -> None:
    with (
        pytest.raises(UnsupportedModelError, match="slot-save-path: layers that keep states"),
        engine("mamba2", limits=saving(tmp_path)),
    ):
        pass
