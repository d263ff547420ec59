"""An engine that nobody asks for goes and comes back: memory falls, answers stay, none is lost."""

import asyncio
import gc
import os
from dataclasses import asdict, replace
from functools import reduce
from gc import get_freeze_count  # conftest.py has another one in its place
from itertools import pairwise
from pathlib import Path
from weakref import ref

import pytest
import torch

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.replica_status import TierSize
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loader import load_model
from deployments.engine.stats import Durations, EngineStats
from deployments.model.metrics import (
    ACCEPTED_BY_POSITION,
    COUNTERS,
    GAUGES,
    TIERS,
    engine_families,
    tier_counters,
    tier_gauges,
    tier_sizes,
    with_past,
)
from deployments.model.model_source import ModelSource, collect_garbage
from deployments.model.settings import MergedAdapter, ModelSettings
from deployments.model.sleeper import Sleeper
from tests.checkpoints import save_checkpoint, save_large
from tests.model.life import GREEDY, LIMITS, SAMPLED, Life, ask, ids, request


def resident() -> int:
    """Bytes of memory that this process holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("tiny"))


def test_an_engine_that_slept_answers_as_before(checkpoint: Path) -> None:
    async def scenario() -> None:
        async with Life(checkpoint).begin() as sleeper:
            before = [ids(await ask(sleeper, sampling)) for sampling in (GREEDY, SAMPLED)]
            for _ in range(2):
                assert await sleeper.sleep()
                assert sleeper.sleeping
                after = [ids(await ask(sleeper, sampling)) for sampling in (GREEDY, SAMPLED)]
                assert after == before

    asyncio.run(scenario())


def test_a_prefix_outlives_sleep_on_a_disk_while_the_files_are_the_same(
    checkpoint: Path, tmp_path: Path
) -> None:
    limits = replace(LIMITS, context_length=400, cache_disk=str(tmp_path / "kept"))
    model = save_checkpoint(tmp_path / "model")
    prompt = tuple(i % 90 for i in range(300))

    async def answer(sleeper: Sleeper) -> tuple[list[int], int]:
        async with sleeper.engine() as core:
            asked = replace(request(GREEDY), prompt_ids=prompt)
            events = [event async for event in core.stream(asked)]
        return ids(events), events[-1].cached_tokens

    async def scenario() -> None:
        async with Life(model, limits).begin() as sleeper:
            before, _ = await answer(sleeper)
            assert await sleeper.sleep()
            assert await answer(sleeper) == (before, 288)
            assert sleeper.stats().kv_disk_hit_tokens == 288
        weights = model / "model.safetensors"
        os.utime(weights, (0, 0))
        async with Life(model, limits).begin() as sleeper:
            assert await answer(sleeper) == (before, 0)

    asyncio.run(scenario())


def test_weights_that_were_kept_make_an_engine_that_answers_the_same(checkpoint: Path) -> None:
    async def answer() -> list[int]:
        core = await asyncio.to_thread(EngineCore, model, frozenset(), LIMITS)
        try:
            return ids([event async for event in core.stream(request(SAMPLED))])
        finally:
            await asyncio.to_thread(core.shutdown)

    model = load_model(str(checkpoint), dtype=torch.float32)
    assert asyncio.run(answer()) == asyncio.run(answer())


def test_memory_falls_with_sleep_and_comes_back_with_a_request(
    checkpoint: Path, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Life(checkpoint).begin() as sleeper:  # whatever torch keeps from its first use
            await ask(sleeper)
            await sleeper.sleep()  # gives back what was freed before
        before = resident()
        async with Life(tmp_path).begin() as sleeper:
            answer = ids(await ask(sleeper))
            awake = resident()
            await sleeper.sleep()
            asleep = resident()
            assert ids(await ask(sleeper)) == answer
            again = resident()
        assert awake - before > 0.9 * n_bytes
        assert awake - asleep > 0.9 * n_bytes
        assert again - asleep > 0.9 * n_bytes

    n_bytes = save_large(tmp_path)
    asyncio.run(scenario())


def test_garbage_is_found_where_serve_has_frozen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    cycle = Cycle()
    left = ref(cycle)
    gc.freeze()
    del cycle
    gc.collect()
    assert left() is not None
    monkeypatch.setattr(gc, "get_freeze_count", get_freeze_count)
    collect_garbage()
    assert left() is None
    assert get_freeze_count() > 0


def test_an_engine_that_cannot_go_on_is_not_put_to_sleep(checkpoint: Path) -> None:
    async def scenario() -> None:
        async with Life(checkpoint).begin(idle_s=0.0) as sleeper:
            async with sleeper.engine() as core:
                core.shutdown()
            with pytest.raises(RuntimeError, match="thread has ended"):
                await sleeper.run()
            assert not sleeper.sleeping

    asyncio.run(scenario())


def test_those_who_want_it_together_wait_for_one_wake(checkpoint: Path) -> None:
    async def scenario() -> None:
        life = Life(checkpoint)
        async with life.begin() as sleeper:
            alone = ids(await ask(sleeper))
            await sleeper.sleep()
            answers = await asyncio.gather(*(ask(sleeper) for _ in range(8)))
        assert [ids(answer) for answer in answers] == [alone] * 8
        assert life.n_starts == 2

    asyncio.run(scenario())


def test_those_who_are_too_many_to_wait_are_told_so_at_once(checkpoint: Path) -> None:
    async def scenario() -> None:
        life = Life(checkpoint, replace(LIMITS, max_waiting=3))
        async with life.begin() as sleeper:
            await sleeper.sleep()
            waiting = [asyncio.create_task(ask(sleeper)) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(Refused) as refused:
                await ask(sleeper)
            assert refused.value.error.kind is ErrorKind.OVERLOADED
            assert sleeper.sleeping
            assert sleeper.stats().waiting_requests == 3
            for answer in await asyncio.gather(*waiting):
                assert len(ids(answer)) == 24
            assert sleeper.stats().waiting_requests == 0

    asyncio.run(scenario())


def test_a_request_that_comes_while_it_falls_asleep_is_served(checkpoint: Path) -> None:
    async def scenario() -> None:
        life = Life(checkpoint)
        async with life.begin() as sleeper:
            alone = ids(await ask(sleeper))
            falling = asyncio.create_task(sleeper.sleep())
            await life.changed.wait()
            assert not falling.done()
            assert ids(await ask(sleeper)) == alone
            assert await falling

    asyncio.run(scenario())


def test_it_does_not_sleep_while_somebody_has_it(checkpoint: Path) -> None:
    async def scenario() -> None:
        async with Life(checkpoint).begin() as sleeper, sleeper.engine():
            assert not await sleeper.sleep()
            assert (sleeper.users, sleeper.idle_s, sleeper.sleeping) == (1, 0.0, False)

    asyncio.run(scenario())


def test_who_leaves_while_it_wakes_takes_the_wake_from_nobody(checkpoint: Path) -> None:
    async def scenario() -> None:
        async with Life(checkpoint).begin() as sleeper:
            await sleeper.sleep()
            first, second = (asyncio.create_task(ask(sleeper)) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            assert len(ids(await second)) == 24
            assert first.cancelled()
            assert sleeper.users == 0

    asyncio.run(scenario())


def test_it_falls_asleep_by_itself_and_again_after_each_wake(checkpoint: Path) -> None:
    async def scenario() -> None:
        life = Life(checkpoint)
        async with life.begin(idle_s=0.01) as sleeper:
            running = asyncio.create_task(sleeper.run())
            for _ in range(2):
                while not sleeper.sleeping:
                    life.changed.clear()
                    await life.changed.wait()
                await ask(sleeper)
            running.cancel()
        assert [journal is None for journal in life.journals[:4]] == [True, False, True, False]

    asyncio.run(scenario())


def test_looking_at_it_neither_wakes_it_nor_makes_it_look_asked_for(checkpoint: Path) -> None:
    async def scenario() -> None:
        async with Life(checkpoint).begin() as sleeper:
            await ask(sleeper)
            await sleeper.sleep()
            idle_s = sleeper.idle_s
            stats = sleeper.stats()
            sleeper.check_health()
            sleeper.abort("r")
            assert sleeper.sleeping
            assert sleeper.idle_s >= idle_s
            assert (stats.pages_total, stats.pages_used, sleeper.users) == (0, 0, 0)

    asyncio.run(scenario())


def test_counters_never_go_back(checkpoint: Path) -> None:
    async def scenario() -> None:
        seen: list[list[float]] = []

        def look() -> None:
            stats = asdict(sleeper.stats())
            seen.append([stats[name] for name in COUNTERS])

        life = Life(checkpoint)
        async with life.begin() as sleeper:
            look()
            for _ in range(3):
                await ask(sleeper)
                look()
                falling = asyncio.create_task(sleeper.sleep())
                await asyncio.sleep(0)
                look()
                await falling
                look()
            await ask(sleeper)
            look()
            stats = sleeper.stats()
        for earlier, later in pairwise(seen):
            assert all(b >= a for a, b in zip(earlier, later, strict=True))
        assert (stats.total_requests, stats.tokens_generated) == (4, 4 * 24)
        assert stats.pages_total == LIMITS.n_pages

    asyncio.run(scenario())


def test_counters_of_drafts_are_told_by_position_over_all_engines() -> None:
    engines = [EngineStats(), EngineStats(), EngineStats(pages_total=3)]
    for stats, positions in zip(engines, ([0, 1, 2], [0], []), strict=True):
        for position in positions:
            stats.accept(position)
    total = reduce(lambda past, stats: with_past(stats, past), engines)
    assert (total.accepted_tokens, total.pages_total) == (4, 3)
    [told] = [
        family.samples for family in engine_families(total) if family.name == ACCEPTED_BY_POSITION
    ]
    assert [(labels["position"], n) for _, labels, n in told] == [("0", 2), ("1", 1), ("2", 1)]
    assert engine_families(EngineStats())[-1].name != ACCEPTED_BY_POSITION


def test_every_number_of_an_engine_is_a_counter_or_a_gauge() -> None:
    of_tiers = {
        f"kv_{tier}_{name}" for tier in TIERS for name in (*tier_gauges(tier), *tier_counters(tier))
    }
    assert EngineStats().as_dict().keys() == COUNTERS.keys() | GAUGES.keys() | of_tiers


def test_what_tiers_gave_is_told_over_all_engines_where_there_is_one() -> None:
    slow, quick = Durations(), Durations()
    slow.add(2.0)
    quick.add(0.01)
    engines = [
        EngineStats(kv_disk_hit_tokens=3, kv_disk_restore_seconds=slow),
        EngineStats(),  # asleep
        EngineStats(kv_disk_bytes=5, kv_disk_hit_tokens=4, kv_disk_restore_seconds=quick),
    ]
    total = reduce(lambda past, stats: with_past(stats, past), engines)
    assert tier_sizes(total) == (TierSize("disk", 5, 7),)
    told = {
        (name, labels.get("le")): value
        for family in engine_families(total)
        for name, labels, value in family.samples
    }
    assert told["manta_kv_tier_hit_tokens_total", None] == 7
    counted = [told["manta_kv_restore_seconds_bucket", le] for le in ("0.003", "0.01", "3.0")]
    assert counted == [0, 1, 2]
    assert told["manta_kv_restore_seconds_sum", None] == 2.01
    assert told["manta_kv_restore_seconds_count", None] == 2
    assert not any("tier" in family.name for family in engine_families(EngineStats()))


def test_its_prefix_cache_starts_empty_and_others_hear_of_it(checkpoint: Path) -> None:
    async def scenario() -> None:
        life = Life(checkpoint)
        async with life.begin() as sleeper:
            await ask(sleeper)
            assert (await ask(sleeper))[0].cached_tokens > 0
            await sleeper.sleep()
            assert (await ask(sleeper))[0].cached_tokens == 0
            nothing, journal = life.journals
            assert nothing is None
            assert journal is not None
            assert journal.changed

    asyncio.run(scenario())


def test_a_load_says_how_far_it_is(checkpoint: Path) -> None:
    async def scenario() -> None:
        life = Life(checkpoint)
        async with life.begin():
            pass
        assert life.said[0] == ("weights", 0.0)
        assert life.said[-3:] == [("weights", 1.0), ("engine", 0.0), ("engine", 1.0)]
        values = [value for stage, value in life.said if stage == "weights"]
        assert values == sorted(values)
        assert len(set(values)) > 10

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sleep_weights": "host"}, "sleep_weights"),
        ({"sleep_idle_s": 0.0}, "sleep_idle_s"),
        ({"limits": EngineLimits(async_scheduling=True, draft_tokens=2)}, "async_scheduling"),
        ({"adapters": (MergedAdapter(path="nowhere"),)}, "nowhere"),
    ],
)
def test_what_a_replica_can_not_do_is_refused_by_name(
    checkpoint: Path, changed: dict[str, object], named: str
) -> None:
    settings = ModelSettings(name="m", path=str(checkpoint))
    with pytest.raises((ValueError, OSError), match=named):
        ModelSource(replace(settings, **changed), lambda *_: None).start()  # type: ignore[arg-type]
