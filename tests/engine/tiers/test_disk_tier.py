"""Prefixes on a disk: what comes of a request is what would have come without, whatever fails."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from deployments.contract.events import CacheSource
from deployments.contract.requests import SamplingParams
from deployments.engine import build_tiers
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.fingerprint import WeightsIdentity
from deployments.engine.needs import kv_tier
from deployments.model.settings import ModelSettings, check_settings
from kv.tiers import folder
from kv.tiers.files import TierFiles
from tests.adapters import make_adapter
from tests.engine import laws
from tests.engine.drive import PATIENCE_S, Engine, engine, random_ids, request, roomy
from tests.engine.media.seeing import language_model, picture, seeing
from tests.engine.scheduler import test_head_drafter
from tests.engine.test_laws_layers import KINDS_OF_STATES, needs_states, of_kinds
from tests.engine.workload import Workload
from tests.models import alike, tiny_model

LONG = 290  # tokens: more than what is computed anyway
SAMPLING = SamplingParams(temperature=2, seed=3, logprobs=1)
LIMITS = roomy(n_pages=2048, page_size=8)
REQUESTS = [
    request(f"r{i}", random_ids(LONG + 9 * i, seed=i), SAMPLING, max_tokens=6) for i in range(2)
]


def workload(architecture: str = "llama") -> Workload:
    return Workload(
        requests=REQUESTS,
        model=partial(tiny_model, architecture),
        limits=LIMITS,
        tolerance=1e-3,
    )


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a disk that works is in time."""
    for name in ("GRACE_S", "OPEN_S", "FLUSH_S"):
        monkeypatch.setattr(kv_tier, name, PATIENCE_S)


# Windows beside full attention, windows alone, latents; and by full attention alone.
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mistral", "deepseek_v3"])
def test_restored_is_computed(tmp_path: Path, architecture: str) -> None:
    laws.restored_is_computed(workload(architecture), tmp_path)


@of_kinds(*KINDS_OF_STATES)
def test_restored_is_computed_with_states(tmp_path: Path, architecture: str) -> None:
    laws.restored_is_computed(workload(architecture), tmp_path)


def test_restored_is_computed_while_steps_are_launched_ahead(tmp_path: Path) -> None:
    """They write to pages of tasks that have ended; what is read comes behind them."""
    laws.restored_is_computed(workload().on(async_scheduling=True), tmp_path)


def test_restored_is_computed_with_adapters(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", tiny_model(), seed=1)
    plain, _ = REQUESTS
    adapted = replace(plain, content=replace(plain.content, adapters=(adapter,)))
    both = replace(workload(), requests=[plain, adapted], limits=replace(LIMITS, max_loras=2))
    laws.restored_is_computed(both, tmp_path / "kept")


def test_restored_is_computed_with_what_a_draft_model_has_read(tmp_path: Path) -> None:
    drafting = replace(workload(), draft=lambda: alike(tiny_model()))
    laws.restored_is_computed(drafting.on(draft_tokens=4, draft_min=1), tmp_path)


def test_restored_is_computed_with_what_a_draft_head_has_read(tmp_path: Path) -> None:
    drafting = test_head_drafter.drafted(SAMPLING, requests=REQUESTS)
    laws.restored_is_computed(drafting.on(**test_head_drafter.DRAFTING), tmp_path)


def test_restored_is_computed_with_a_picture(tmp_path: Path) -> None:
    text = "What is this? <image> " + "Say it. " * 40
    asked = seeing().request("r", text, (picture(1),), SAMPLING)
    seen = replace(workload(), requests=[asked], model=language_model)
    laws.restored_is_computed(seen, tmp_path)


def kept(path: Path, **changes: float | None) -> EngineLimits:
    return replace(LIMITS, cache_disk=str(path), **changes)  # type: ignore[arg-type]


@of_kinds("llama", pytest.param("qwen3_next", marks=needs_states))
def test_a_task_that_is_preempted_comes_back_by_the_disk(tmp_path: Path, architecture: str) -> None:
    few = {"n_pages": 84, "max_running": 4, "max_batch_tokens": 64}
    prompts = [random_ids(LONG, seed=i) for i in range(3)]
    many = replace(
        workload(architecture),
        requests=[request("r", prompt, SAMPLING, max_tokens=50) for prompt in prompts],
    )
    with many.kept_in(tmp_path).engine(**few) as running:
        many.check_on(running)
        assert running.core.stats().preemptions > 0
        running.core.cache.check()


def test_other_weights_another_draft_or_layout_find_nothing(tmp_path: Path) -> None:
    [first, _] = REQUESTS
    with engine(limits=kept(tmp_path)) as running:
        running.run(first)
    others: list[dict[str, object]] = [
        {"limits": kept(tmp_path, page_size=16)},
        {"limits": kept(tmp_path), "identity": WeightsIdentity(weights=("other weights",))},
        {"limits": kept(tmp_path, draft_tokens=4), "draft": alike(tiny_model())},
    ]
    for changes in others:
        with engine(**changes) as running:  # type: ignore[arg-type]
            assert running.run(first)[0].cached_tokens == 0
            assert running.core.stats().kv_disk_corrupt == 0
    with engine(limits=kept(tmp_path)) as running:
        assert running.run(first)[0].cached_tokens == LONG // 8 * 8


def test_where_cached_tokens_come_from_is_told(tmp_path: Path) -> None:
    """Tokens that are both in memory and on the disk come from memory."""
    [first, _] = REQUESTS
    start = replace(first, prompt_ids=first.prompt_ids[:17], is_kept=False)
    with engine(limits=kept(tmp_path)) as running:
        running.run(first)
    with engine(limits=kept(tmp_path)) as running:
        outcomes = [running.run(req)[0] for req in (start, first, first)]
    assert [outcome.cached_by_source for outcome in outcomes] == [
        ((CacheSource.DEVICE, n), (CacheSource.DISK, m)) for n, m in [(0, 0), (16, 272), (288, 0)]
    ]


def test_an_owner_finds_nothing_of_another_one(tmp_path: Path) -> None:
    [first, _] = REQUESTS
    anna = replace(first, owner="anna", content=replace(first.content, salt="anna"))
    ben = replace(first, owner="ben", content=replace(first.content, salt="ben"))
    with engine(limits=kept(tmp_path)) as running:
        running.run(anna)
        running.run(replace(ben, is_kept=False))
    with engine(limits=kept(tmp_path)) as running:
        assert running.run(ben)[0].cached_tokens == 0
        assert running.run(anna)[0].cached_tokens > 0
    assert folder.erase_owner(tmp_path, "anna") == 1
    with engine(limits=kept(tmp_path)) as running:
        assert running.run(anna)[0].cached_tokens == 0
        assert running.run(ben)[0].cached_tokens > 0


def test_what_is_not_finite_is_neither_kept_nor_found_again(tmp_path: Path) -> None:
    """Pages that a later step shows to be broken go from the disk, too."""
    [first, _] = REQUESTS
    longer = replace(first, prompt_ids=first.prompt_ids + (1, 2, 3))
    with engine(limits=kept(tmp_path)) as running:
        running.run(first)
    with engine(limits=kept(tmp_path)) as running:
        with torch.no_grad():
            running.model.get_output_embeddings().weight.fill_(torch.nan)
        assert running.run(longer)[0].error is not None
    with engine(limits=kept(tmp_path)) as running:
        assert running.run(first)[0].cached_tokens == 0


class HangingFiles(TierFiles):
    """Reads and writes stand until they are let go."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.has_read = threading.Event()

    def hang(self) -> None:
        self.may_go_on.clear()
        self.has_read.clear()

    def read(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        self.has_read.set()
        self.may_go_on.wait()
        return super().read(descriptor, buffer, offset)

    def write(self, path: Path, pieces: Sequence[bytes | memoryview]) -> None:
        self.may_go_on.wait()
        super().write(path, pieces)


@contextmanager
def hanging(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Engine, HangingFiles]]:
    files = HangingFiles()
    monkeypatch.setattr(build_tiers, "BundleFolder", partial(folder.BundleFolder, files=files))
    with engine(limits=kept(path)) as running:
        try:
            yield running, files
        finally:
            files.may_go_on.set()


def test_nobody_waits_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = REQUESTS
    with engine(limits=kept(tmp_path)) as running:
        expected = running.run(first, second)
    monkeypatch.setattr(kv_tier, "GRACE_S", 0.05)
    with hanging(tmp_path, monkeypatch) as (running, files):
        running.run(request("short", (1, 2)))  # it is known by now what lies there
        files.hang()

        async def run() -> None:
            waiting = asyncio.create_task(running.follow(first))
            await asyncio.to_thread(files.has_read.wait)
            stream = await running.follow(request("stream", (1, 2, 3), max_tokens=30))
            assert stream.outcome.error is None
            outcome = (await waiting).outcome
            assert outcome.token_ids == expected[0].token_ids
            assert outcome.cached_tokens == 0

        asyncio.run(run())
        [outcome] = running.run(second)  # nothing is asked of a disk that hangs
        assert outcome.token_ids == expected[1].token_ids
        assert running.core.stats().kv_disk_declined == 1


@pytest.mark.parametrize("leaves", ["before", "after"])
def test_a_client_that_leaves_while_its_pages_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: str
) -> None:
    first, _ = REQUESTS
    with engine(limits=kept(tmp_path)) as running:
        expected = running.run(first)
    with hanging(tmp_path, monkeypatch) as (running, files):
        running.run(request("short", (1, 2)))
        files.hang()

        async def run() -> None:
            waiting = asyncio.create_task(running.follow(first))
            await asyncio.to_thread(files.has_read.wait)
            running.core.abort(first.request_id)
            if leaves == "before":
                await waiting
            files.may_go_on.set()
            assert not (await waiting).outcome.token_ids

        asyncio.run(run())
        assert running.run(first)[0].token_ids == expected[0].token_ids


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"num_gpus": 1.0}, "/kept", "on a CPU"),
        ({"tensor_parallel": 2}, "/kept", "in one rank"),
        ({}, "kept", "begins with / or ~"),
    ],
)
def test_settings_that_can_not_be_kept_are_refused(
    changes: dict[str, Any], path: str, reason: str
) -> None:
    limits = EngineLimits(cache_disk=path)
    with pytest.raises(ValueError, match=f"cache-disk: .*{reason}"):
        check_settings(ModelSettings(name="m", path="m", limits=limits, **changes))


@needs_states
@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("rwkv", {}, "rwkv is computed row by row"),
        ("mamba2", {"ctx_checkpoints": 0}, "ctx-checkpoints and ctx-checkpoints-mib leave none"),
    ],
)
def test_states_that_can_not_be_kept_are_refused_by_name(
    tmp_path: Path, architecture: str, changes: dict[str, Any], reason: str
) -> None:
    refused = pytest.raises((UnsupportedModelError, ValueError), match=f"cache-disk: .*{reason}")
    with refused, engine(architecture, limits=kept(tmp_path, **changes)):
        pass
