"""The fleet as its page sees it: sums, rates and quantiles, and one poll for all who watch."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.contract.replica_status import FleetStatus, ReplicaState, ReplicaStatus, TierSize
from deployments.ingress.metrics import FAST_BUCKETS, Latencies, Metrics
from deployments.llama.server import fleet_feed
from deployments.llama.server.fleet_feed import MAX_WATCHERS, FleetFeed
from deployments.llama.server.fleet_readings import FleetReading, Readings, quantile
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import ScriptedEngine, says
from tests.llama.serving import send
from tests.router.reports import report
from tests.text.cards import card

NOTHING = (0.0,) * (len(FAST_BUCKETS) + 1)


def model(name: str) -> ModelStatus:
    return ModelStatus(name=name, application=f"model-{name}", state=ModelState.READY, created=0)


def replica(name: str, tokens: int | None, **numbers: Any) -> ReplicaStatus:
    """One that has generated so many tokens, or has not reported yet."""
    return ReplicaStatus(
        replica_id=name,
        node="10.0.0.2",
        node_id="n",
        state=ReplicaState.READY,
        report=None if tokens is None else report(name, tokens_generated=tokens, **numbers),
    )


def reading(
    at: float,
    *models: tuple[str, tuple[ReplicaStatus, ...]],
    latencies: Mapping[str, Mapping[str, Latencies]] | None = None,
) -> FleetReading:
    told = FleetStatus(
        started_at=100.0,
        can_download=True,
        models=tuple((model(name), replicas) for name, replicas in models),
    )
    return FleetReading(at=at, time=200.0 + at, fleet=told, latencies=latencies or {})


def after(*readings: FleetReading) -> Any:
    kept = Readings()
    for sample in readings:
        kept.add(sample)
    return kept.described()


def within(seconds: float, count: int) -> tuple[float, ...]:
    """A histogram of so many values, all in the bucket that ends there."""
    return tuple(float(count * (bound >= seconds)) for bound in (*FAST_BUCKETS, float("inf")))


def test_the_numbers_of_replicas_are_summed_by_model_and_over_all() -> None:
    told = after(
        reading(
            0,
            ("a", (replica("1", 5, running=2, pages_used=3, pages_total=4), replica("2", None))),
            ("b", (replica("3", 7, waiting=1, preemptions=6),)),
        )
    )
    assert [told[key] for key in ("uptime_s", "running", "waiting")] == [100.0, 2, 1]
    assert told["can_download"] is True
    assert [told[key] for key in ("pages_used", "pages_total", "preemptions")] == [3, 4, 6]
    assert [stats["tokens_generated"] for stats in (told, *told["models"])] == [12, 5, 7]
    first, second = told["models"][0]["replicas"]
    assert (first["id"], first["node"], first["state"]) == ("1", "10.0.0.2", "ready")
    assert (first["running"], second["running"]) == (2, None)
    assert told["models"][0]["status"]["value"] == "loaded"


def test_tiers_are_counted_by_model_and_those_that_replicas_of_a_node_share_once() -> None:
    def at(node: str, *tiers: TierSize) -> ReplicaStatus:
        return replace(replica(node, 0, tiers=tiers), node_id=node)

    shared, other = TierSize("disk", 10, 100), TierSize("disk", 5, 7)
    told = after(reading(0, ("a", (at("1", shared), at("1", shared), at("2", other))), ("b", ())))
    first, second = told["models"]
    assert first["tiers"] == {"disk": {"bytes": 15, "hit_tokens": 207}}
    assert first["replicas"][2]["tiers"] == {"disk": {"bytes": 5, "hit_tokens": 7}}
    assert second["tiers"] == {}


def test_a_rate_is_of_what_was_generated_between_readings() -> None:
    def at(seconds: float, *tokens: int) -> FleetReading:
        replicas = (replica(str(index), count) for index, count in enumerate(tokens))
        return reading(seconds, ("a", tuple(replicas)))

    assert after(at(0, 5))["tokens_per_second"] is None  # one reading tells of no rate
    assert after(at(0, 5), at(2, 25))["tokens_per_second"] == 10.0
    assert after(at(0, 5), at(2, 25, 900))["tokens_per_second"] == 10.0  # the other is new
    assert after(at(0, 5, 900), at(2, 25))["tokens_per_second"] == 10.0  # or gone
    assert after(at(0, 500), at(2, 3))["tokens_per_second"] == 0.0  # or starts over
    assert after(at(0, 0), at(20, 1000), at(25, 1010))["tokens_per_second"] == 2.0


def test_quantiles_are_of_the_waits_within_the_window() -> None:
    old, new = within(5, 9), within(5, 9)
    new = tuple(sum(pair) for pair in zip(new, within(0.2, 3), strict=True))
    waits = [
        {"r": {"a": Latencies(old, NOTHING)}},
        {"r": {"a": Latencies(new, NOTHING)}, "late": {"a": Latencies(within(60, 99), NOTHING)}},
    ]
    told = after(*(reading(2.0 * at, ("a", ()), latencies=w) for at, w in enumerate(waits)))
    for stats in (told, told["models"][0]):
        assert 0.1 < stats["time_to_first_token_s"]["p50"] < stats["time_to_first_token_s"]["p99"]
        assert stats["time_to_first_token_s"]["p99"] <= 0.2
        assert stats["inter_token_latency_s"] is None
    later = reading(100.0, ("a", ()), latencies=waits[1])
    assert after(reading(0, ("a", ()), latencies=waits[0]), later)["time_to_first_token_s"] is None


@pytest.mark.parametrize(("counts", "share", "value"), [
    (within(0.002, 4), 0.5, 0.0015),
    (within(120, 4), 1.0, 120.0),
    (within(float("inf"), 4), 0.5, 120.0),
])  # fmt: skip
def test_a_quantile_is_within_its_bucket(
    counts: tuple[float, ...], share: float, value: float
) -> None:
    assert quantile(counts, share) == pytest.approx(value)


def test_the_counts_of_an_ingress_are_those_of_its_requests() -> None:
    metrics = Metrics()
    guard = metrics.guard("chat")
    with guard:
        guard.serving("a", stream=True)
        guard.produced(0, 1)
        guard.produced(0, 3)
    told = metrics.latencies()["a"]
    assert (told.first_token[-1], told.between_tokens[-1]) == (1.0, 1.0)
    assert len(told.first_token) == len(FAST_BUCKETS) + 1


def tiny() -> CountingCluster:
    return CountingCluster(says("x"), card())


def asked(cluster: CountingCluster, path: str) -> httpx.Response:
    return asyncio.run(send(cluster, "GET", path))


def test_the_fleet_is_shown_once() -> None:
    told = asked(tiny(), "/fleet").json()
    [of_model] = told["models"]
    assert (of_model["id"], of_model["replicas"][0]["id"]) == ("tiny", "0")
    assert told["tokens_per_second"] is None


def test_replicas_in_the_statistics_have_ids_nodes_and_states() -> None:
    heard, unheard = asked(tiny(), "/stats").json()["replicas"]
    assert [heard[key] for key in ("replica", "node", "state")] == ["0", "10.0.0.2", "ready"]
    assert [unheard[key] for key in ("replica", "node", "state")] == ["1", "", "starting"]


class Watched(ScriptedEngine):
    """Counts how often it is asked, and gives no answer while it `fails`."""

    def __init__(self) -> None:
        super().__init__(says("x"), card())
        self.polls = 0
        self.fails = False

    async def fleet(self) -> FleetStatus:
        self.polls += 1
        if self.fails:
            raise Refused.of_kind(ErrorKind.UNAVAILABLE, "The router does not answer")
        return await super().fleet()


async def told_by(events: AsyncGenerator[bytes, None]) -> Any:
    return json.loads((await anext(events)).removeprefix(b"data: "))


async def test_all_who_watch_share_a_poll_and_nobody_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_feed, "POLL_INTERVAL_S", 600.0)
    monkeypatch.setattr(fleet_feed, "MAX_READING_AGE_S", 600.0)
    cluster = Watched()
    feed = FleetFeed(cluster)
    async with aclosing(feed.watch("a")) as one, aclosing(feed.watch("b")) as other:
        first, second = await told_by(one), await told_by(other)
        assert first == second
        assert first["models"][0]["id"] == "tiny"
        assert json.loads(await feed.latest()) == first
    shared = cluster.polls
    for _ in range(100):
        await asyncio.sleep(0)
    assert (shared, cluster.polls) == (1, 1)


async def test_who_watches_is_told_that_the_router_is_away_and_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_feed, "POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(fleet_feed, "MAX_READING_AGE_S", 0.0)
    cluster = Watched()
    cluster.fails = True
    async with aclosing(FleetFeed(cluster).watch("a")) as events:
        assert (await told_by(events))["error"]["code"] == 503
        cluster.fails = False
        while "error" in (told := await told_by(events)):
            pass
        assert told["models"]


def test_no_client_takes_all_slots_of_those_who_watch() -> None:
    async def asks() -> int:
        feed = FleetFeed(Watched())
        async with AsyncExitStack() as stack:
            for n_watching in range(MAX_WATCHERS):
                try:
                    events = feed.watch("greedy")
                except Refused:
                    await stack.enter_async_context(aclosing(other := feed.watch("modest")))
                    await anext(other)
                    return n_watching
                await stack.enter_async_context(aclosing(events))
                await anext(events)
        raise AssertionError("one client has all slots")

    assert asyncio.run(asks()) < MAX_WATCHERS
