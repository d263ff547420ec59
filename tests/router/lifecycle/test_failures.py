"""When a model has failed, what is told of it, and when it is tried again, without Ray."""

from dataclasses import replace

import pytest
from ray.serve.schema import ApplicationStatus

from deployments.contract.model_status import ModelState
from deployments.router.lifecycle.applications import DeployedApplication
from deployments.router.lifecycle.model_entry import MAX_FAILED_STARTS, Phase
from tests.router.lifecycle.entries import FAILED, RUNNING, entry, loaded
from tests.router.reports import report


def test_a_failed_load_says_why_and_holds_what_it_has_until_it_is_gone() -> None:
    model = entry()
    model.start(0)
    model.observe(FAILED, 1)
    assert model.state is ModelState.FAILED
    assert model.holder(1).leaving
    model.observe(None, 2)
    assert model.phase is Phase.GONE
    said = [(model.state, model.status.message)]
    model.clear_failure()
    said.append((model.state, model.status.message))
    assert said == [
        (ModelState.FAILED, "no such model Check its name."),
        (ModelState.UNLOADED, ""),
    ]


def test_a_model_has_failed_when_none_of_its_replicas_can_wake() -> None:
    model = loaded()
    model.report(report("a", sleeping=True, failure="no such folder"))
    assert (model.state, model.status.message) == (ModelState.FAILED, "no such folder")
    assert model.status.will_retry
    assert not model.choose((), "r", "", "", 2).is_up
    assert not model.may_be_asked_for(1000)  # its replicas try it themselves
    model.report(report("b", sleeping=True))
    assert model.state is ModelState.SLEEPING
    assert model.choose((), "r", "", "", 2).replica_id == "b"
    model.report(replace(report("a", sleeping=True), sequence=2))
    assert (model.state, model.status.message) == (ModelState.SLEEPING, "")


@pytest.mark.parametrize("target", [1, 2])
def test_a_model_that_was_up_fails_when_no_replica_starts_any_more(target: int) -> None:
    model = loaded()
    told = "The deployment failed to start {} times in a row. Error:\nOSError: no such folder"
    down = DeployedApplication(ApplicationStatus.UNHEALTHY, target=target)
    for n in (1, MAX_FAILED_STARTS - 1, MAX_FAILED_STARTS):
        assert model.phase is Phase.UP
        model.observe(replace(down, message=told.format(n), failed_starts=n), n)
    assert (model.phase, model.state) == (Phase.STOPPING, ModelState.FAILED)
    assert model.status.message == "no such folder"


def test_a_model_stays_up_while_one_of_its_replicas_runs() -> None:
    model = loaded()
    broken = DeployedApplication(ApplicationStatus.UNHEALTHY, "no such folder", failed_starts=9)
    model.observe(replace(broken, running=frozenset("a"), target=2), 2)
    assert model.state is ModelState.READY


def test_a_replica_that_does_not_come_is_overdue_as_a_load_is() -> None:
    model = loaded()
    down = replace(RUNNING, running=frozenset())
    for now, deployed in ((100, down), (150, RUNNING), (160, down), (200, down)):
        model.observe(deployed, now)
        assert not model.is_overdue(now, 60)
    assert model.is_overdue(221, 60)
    model.observe(replace(down, target=0), 221)  # none is wanted
    assert not model.is_overdue(1000, 60)


def test_a_request_may_load_a_failed_model_after_a_pause_that_grows_to_an_end() -> None:
    model = entry()
    assert not model.may_be_asked_for(1000)
    waits = []
    for _ in range(6):
        model.fail("no such folder", 0)
        waits.append(next(s for s in range(0, 1000, 5) if model.may_be_asked_for(s)))
    assert waits == [5, 10, 20, 40, 80, 80]


def test_a_load_that_takes_too_long_is_overdue() -> None:
    model = entry()
    model.start(10)
    assert not model.is_overdue(69, 60)
    assert model.is_overdue(71, 60)
    model.observe(RUNNING, 71)
    assert not model.is_overdue(500, 60)


def test_a_model_of_the_start_is_tried_again_after_a_wait_that_grows_to_an_end() -> None:
    model = entry()
    model.preset = replace(model.preset, load_on_startup=True)
    waits = []
    for _ in range(7):
        model.fail("no GPU", 0)
        waits.append(next(s for s in range(0, 1000, 30) if model.is_retry_due(s)))
    assert waits == [30, 60, 120, 240, 480, 480, 480]
    model.start(0)
    model.observe(RUNNING, 1)
    model.fail("no GPU", 0)
    assert not model.is_retry_due(1000)  # it still has what it is to be loaded with
    model.observe(None, 1)
    assert (model.is_retry_due(29), model.is_retry_due(30)) == (False, True)


def test_a_model_that_waits_for_requests_is_not_tried_again_by_itself() -> None:
    model = entry()
    model.fail("no GPU", 0)
    assert not model.is_retry_due(1000)
