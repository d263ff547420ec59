"""A model's states by what Serve and its replicas say, and who is told, without Ray."""

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ray.serve.schema import ApplicationStatus

from deployments.contract.model_status import DEMO_SOURCE, LoadProgress, ModelState
from deployments.model.settings import Autoscaling
from deployments.router.lifecycle import change_feed
from deployments.router.lifecycle.applications import DeployedApplication
from deployments.router.lifecycle.capacity import Resources
from deployments.router.lifecycle.change_feed import ChangeFeed
from deployments.router.lifecycle.model_entry import (
    BUSY_GRACE_S,
    DEPLOY_GRACE_S,
    FIRST_REPORT_GRACE_S,
    SCALE_UP_GRACE_S,
    ModelEntry,
    Phase,
)
from deployments.router.lifecycle.registry import Registry
from deployments.router.replicas.replica_set import ReplicaSet
from deployments.router.settings import Preset, RoutingSettings
from deployments.serving.deploy_errors import last_error
from tests.router.lifecycle.entries import (
    DELETING,
    DEPLOYING,
    FAILED,
    RUNNING,
    entry,
    loaded,
    preset,
)
from tests.router.reports import report


def test_a_model_goes_through_its_states() -> None:
    model = entry()
    states = [model.state]
    model.start(0)
    states.append(model.state)
    for deployed in (DEPLOYING, RUNNING, DELETING, None):
        model.observe(deployed, 1)
        states.append(model.state)
    assert states == [
        ModelState.UNLOADED,
        ModelState.LOADING,
        ModelState.LOADING,
        ModelState.READY,
        ModelState.UNLOADING,
        ModelState.UNLOADED,
    ]


def test_what_was_just_deployed_is_not_gone_where_serve_does_not_tell_of_it_yet() -> None:
    model = entry()
    model.start(0)
    for now, state in ((1, ModelState.LOADING), (DEPLOY_GRACE_S, ModelState.UNLOADED)):
        model.observe(None, now)
        assert model.state is state


def test_a_model_whose_replica_is_to_come_is_not_idle_however_long_it_takes() -> None:
    model = loaded()
    for target, is_idle in ((1, False), (0, True)):
        model.observe(replace(RUNNING, running=frozenset(), target=target), 2)
        assert model.holder(10_000).idle is is_idle


def test_a_change_that_fails_leaves_the_replicas_that_answer() -> None:
    model = loaded()
    model.observe(replace(FAILED, running=frozenset("a")), 2)
    assert model.state is ModelState.READY
    assert model.status.message == "the last change failed: no such model Check its name."
    model.stop(3)
    assert (model.state, model.status.message) == (ModelState.UNLOADING, "")


def test_a_model_without_replicas_is_up_and_not_ready() -> None:
    model = loaded()
    model.observe(replace(RUNNING, running=frozenset()), 2)
    assert (model.state, model.status.message) == (ModelState.LOADING, "no replica answers")
    assert model.choose((), "r", "", "", 2).is_up
    model.observe(replace(RUNNING, running=frozenset(), target=0), 3)
    assert model.state is ModelState.SLEEPING


def test_a_model_sleeps_when_all_its_replicas_do() -> None:
    model = loaded()
    states = []
    for replica_id, sleeping in (("a", True), ("b", False)):
        model.report(report(replica_id, sleeping=sleeping))
        states.append(model.state)
    assert states == [ModelState.SLEEPING, ModelState.READY]


def test_a_replica_that_ends_gets_nothing_more() -> None:
    model = loaded()
    model.report(report("a"))
    assert model.choose((), "r", "", "", 1).replica_id == "a"
    model.observe(
        DeployedApplication(ApplicationStatus.RUNNING, "", frozenset("b"), frozenset("a")), 2
    )
    assert not model.report(report("a"))
    assert model.choose((), "r", "", "", 2).replica_id is None
    model.report(report("b"))
    assert model.choose((), "r", "", "", 2).replica_id == "b"


def test_a_model_that_is_unloaded_takes_no_requests() -> None:
    model = loaded()
    model.report(report())
    model.stop(2)
    assert not model.choose((), "r", "", "", 2).is_up
    assert not model.report(report())
    assert model.state is ModelState.UNLOADING


def test_a_model_is_idle_when_nothing_runs_and_nothing_is_coming() -> None:
    model = loaded()
    model.report(report(running=1))
    assert not model.holder(2).idle
    model.report(replace(report(), sequence=2))
    assert model.holder(2).idle
    model.choose((), "r", "", "", 2)
    assert not model.holder(2).idle
    assert not entry().holder(0).idle


def test_a_model_that_was_busy_after_all_is_spared_for_a_while() -> None:
    model = loaded()
    model.report(report())
    model.stop(2)
    model.resume(3)
    assert model.state is ModelState.READY
    assert not model.holder(3).idle
    assert model.holder(3 + BUSY_GRACE_S).idle


def test_what_an_earlier_router_deployed_is_taken_over() -> None:
    states = []
    for deployed in (RUNNING, DEPLOYING, DELETING, FAILED):
        model = entry()
        model.observe(deployed, 0)
        states.append((model.state, model.phase))
    assert states == [
        (ModelState.READY, Phase.UP),
        (ModelState.LOADING, Phase.STARTING),
        (ModelState.UNLOADING, Phase.STOPPING),
        (ModelState.FAILED, Phase.STOPPING),
    ]


def test_what_an_earlier_router_was_changing_takes_requests_meanwhile() -> None:
    model = entry()
    model.observe(replace(DEPLOYING, running=frozenset("a")), 1)
    assert model.state is ModelState.READY


def test_a_model_takes_requests_as_soon_as_one_of_its_replicas_does() -> None:
    model = entry()
    model.start(0)
    model.observe(replace(DEPLOYING, target=4), 1)
    assert not model.choose((), "r", "", "", 1).is_up
    model.observe(replace(DEPLOYING, running=frozenset("a"), target=4), 2)
    model.report(report("a"))
    assert (model.state, model.status.replicas) == (ModelState.READY, 1)
    assert model.choose((), "r", "", "", 2).replica_id == "a"
    assert not model.is_overdue(500, 60)
    model.observe(replace(FAILED, running=frozenset("a"), target=4), 3)
    assert model.state is ModelState.READY


def test_the_last_use_of_what_an_earlier_router_deployed_is_what_its_replicas_say() -> None:
    model = ModelEntry(preset(), Resources(), ReplicaSet("m", RoutingSettings(), lambda: 100.0))
    model.observe(RUNNING, 100)
    model.report(replace(report(), idle_s=60.0))
    assert model.last_used(100) == 40
    model.choose((), "r", "", "", 100)
    assert model.last_used(100) == 100


def test_a_model_is_not_idle_before_its_replicas_have_said_so_or_had_time_to() -> None:
    model = entry()
    model.observe(replace(RUNNING, running=frozenset("ab")), 1)
    model.report(report("a"))
    assert not model.holder(2).idle
    assert model.holder(1 + FIRST_REPORT_GRACE_S).idle
    model.report(report("b"))
    assert model.holder(2).idle


def test_a_model_that_a_request_starts_from_no_replica_is_not_idle() -> None:
    model = entry()
    model.observe(DeployedApplication(ApplicationStatus.RUNNING, target=0), 1)
    assert model.holder(50).idle
    assert model.choose((), "r", "", "", 50).is_up
    assert not model.holder(60).idle
    assert model.holder(50 + SCALE_UP_GRACE_S).idle


def test_progress_shows_while_a_model_loads() -> None:
    model = entry()
    model.start(0)
    model.progress(LoadProgress(stage="weights", value=0.5))
    assert model.status.progress == LoadProgress(stage="weights", value=0.5)
    model.observe(RUNNING, 1)
    assert model.status.progress is None


def test_models_are_found_by_name_and_alias_and_the_first_without() -> None:
    registry = Registry(RoutingSettings())
    registry.take([(preset("a", "x", "b"), Resources()), (preset("b"), Resources())])
    found = {model: registry.find(model) for model in (None, "a", "x", "b", "c")}
    names = {model: entry and entry.name for model, entry in found.items()}
    assert names == {None: "a", "a": "a", "x": "a", "b": "b", "c": None}


def test_the_only_model_may_have_any_name() -> None:
    registry = Registry(RoutingSettings(any_model_name=True))
    one, two = ((preset(name), Resources()) for name in "ab")

    def found(model: str | None = "gpt-5") -> str | None:
        entry = registry.find_for_request(model)
        return None if entry is None else entry.name

    registry.take([one])
    assert (found(), found("a"), found(None)) == ("a", "a", "a")
    assert registry["a"].status.has_any_name
    assert registry.find("gpt-5") is None  # a wrong name unloads nothing
    registry.take([one, two])
    assert (found(), found("b")) == (None, "b")
    beside = replace(preset("seeing"), source=DEMO_SOURCE), Resources()
    registry.take([two, beside])
    assert (found(), found("seeing")) == ("b", "seeing")
    assert not registry["a"].status.has_any_name
    by_name = Registry(RoutingSettings())
    by_name.take([one])
    assert by_name.find_for_request("gpt-5") is None
    assert not by_name["a"].status.has_any_name


def test_taking_the_sources_again_tells_what_changed() -> None:
    registry = Registry(RoutingSettings())
    registry.take([(preset(name), Resources()) for name in "abc"])
    kept = registry["b"]
    offers = [preset("d"), preset("b", "alias"), preset("a", num_replicas=2)]
    changed = registry.take([(offer, Resources()) for offer in offers])
    assert [model.name for model in changed] == ["a"]
    assert [(model.name, model.is_removed) for model in registry] == [
        ("d", False),
        ("b", False),
        ("a", False),
        ("c", True),
    ]
    assert registry["b"] is kept
    assert registry.find("alias") is kept
    assert registry.find("c") is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Traceback:\n  File x\nOSError: no such model\nCheck it.", "no such model Check it."),
        ("a.b.CustomError: first\nValueError: second", "second"),
        ("one\ntwo", "two"),
        ("", "it did not start"),
    ],
)
def test_the_reason_of_a_failed_load_is_what_its_exception_says(message: str, said: str) -> None:
    assert last_error(message) == said


def test_an_autoscaled_model_holds_what_its_replicas_of_now_take() -> None:
    scaling = Autoscaling(min_replicas=2, max_replicas=8)
    settings = replace(preset().settings, autoscaling=scaling)
    needs = Resources(cpus=4, gpus=2, gpu_bytes=200)
    model = ModelEntry(Preset(settings=settings), needs, ReplicaSet("m", RoutingSettings()))
    model.start(0)
    assert model.holder(0).needs == needs
    holders = []
    for running, target in (("ab", 2), ("ab", 5), ("abcdef", 5), ("a", 0)):
        model.observe(replace(RUNNING, running=frozenset(running), target=target), 1)
        holders.append(model.holder(1))
    assert [holder.needs.gpus for holder in holders] == [2, 5, 6, 2]
    assert holders[1].needs == Resources(cpus=10, gpus=5, gpu_bytes=500)
    assert holders[1].extra == Resources(models=0, cpus=6, gpus=3, gpu_bytes=300)


def test_whoever_waits_hears_of_a_change_and_of_nothing_else() -> None:
    async def listen() -> None:
        changes, model = ChangeFeed(), loaded()
        changes.publish(model.status)
        version = changes.version
        waiting = asyncio.create_task(changes.wait(version, 60))
        changes.publish(model.status)
        assert changes.version == version
        model.stop(2)
        changes.publish(model.status)
        await waiting
        assert changes.version == version + 1

    asyncio.run(listen())


def test_progress_alone_is_told_no_more_often_than_it_may_and_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = SimpleNamespace(monotonic=lambda: 0.0, time_ns=time.time_ns)
    monkeypatch.setattr(change_feed, "time", at_once)

    async def listen() -> None:
        changes, model = ChangeFeed(), entry()
        model.start(0)
        changes.publish(model.status)
        version = changes.version
        for percent in range(100):
            model.progress(LoadProgress(stage="weights", value=percent / 100))
            changes.publish(model.status)
        assert changes.version == version
        await changes.wait(version, 60)
        assert changes.version == version + 1

    asyncio.run(listen())
