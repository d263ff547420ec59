"""A model's replicas as the router tells of them: what Serve knows and what they report, joined."""

from ray.serve.schema import ReplicaState as ServeState

from deployments.contract.replica_status import ReplicaReport, ReplicaState, ReplicaStatus
from deployments.router.lifecycle.applications import (
    ANSWERING_STATES,
    DeployedApplication,
    DeployedReplica,
)
from deployments.router.replicas.replica_set import ReplicaSet


def replica_statuses(
    deployed: DeployedApplication | None, replicas: ReplicaSet
) -> tuple[ReplicaStatus, ...]:
    if deployed is None:
        return ()
    return tuple(
        _status(replica, replicas.last_report(replica.replica_id)) for replica in deployed.replicas
    )


def _status(deployed: DeployedReplica, report: ReplicaReport | None) -> ReplicaStatus:
    return ReplicaStatus(
        replica_id=deployed.replica_id,
        node=deployed.node,
        node_id=deployed.node_id,
        state=_state(deployed.state, report),
        report=report,
    )


def _state(state: ServeState, report: ReplicaReport | None) -> ReplicaState:
    if state is ServeState.STOPPING:
        return ReplicaState.STOPPING
    if state not in ANSWERING_STATES:
        return ReplicaState.STARTING
    if report is None or not report.sleeping:
        return ReplicaState.READY
    return ReplicaState.FAILED if report.failure else ReplicaState.SLEEPING
