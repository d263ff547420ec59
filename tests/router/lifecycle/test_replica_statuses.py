"""A replica's state, from what Serve knows and what it reports."""

from typing import Any

import pytest
from ray.serve.schema import ApplicationStatus
from ray.serve.schema import ReplicaState as ServeState

from deployments.contract.replica_status import ReplicaState
from deployments.router.lifecycle.applications import DeployedApplication, DeployedReplica
from tests.router.lifecycle.entries import loaded
from tests.router.reports import report


@pytest.mark.parametrize(("serves", "reported", "state"), [
    (ServeState.STARTING, None, ReplicaState.STARTING),
    (ServeState.RUNNING, None, ReplicaState.READY),
    (ServeState.UPDATING, {"running": 3}, ReplicaState.READY),
    (ServeState.RUNNING, {"sleeping": True}, ReplicaState.SLEEPING),
    (ServeState.RUNNING, {"sleeping": True, "failure": "no room"}, ReplicaState.FAILED),
    (ServeState.STOPPING, {"sleeping": True}, ReplicaState.STOPPING),
])  # fmt: skip
def test_a_replica_is_what_serve_says_and_then_what_it_says_itself(
    serves: ServeState, reported: dict[str, Any] | None, state: ReplicaState
) -> None:
    entry = loaded()
    if reported is not None:
        entry.report(report("a", **reported))
    there = DeployedReplica("a", serves, "10.0.0.2", "n")
    entry.observe(
        DeployedApplication(
            ApplicationStatus.RUNNING, running=frozenset("a"), replicas=(there,), target=2
        ),
        2,
    )
    [status] = entry.replica_statuses
    assert (status.replica_id, status.node, status.state) == ("a", "10.0.0.2", state)
    assert (status.report is None) == (reported is None)
    assert (entry.status.replicas, entry.status.replicas_target) == (1, 2)
