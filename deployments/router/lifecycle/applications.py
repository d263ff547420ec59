"""Models as Serve applications: reads their state, deploys and deletes them.

All of it blocks on Serve's controller: never to be called on an event loop.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve._private.deployment_info import DeploymentInfo
from ray.serve.api import RunTarget, run_many
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus, ReplicaState

from deployments.model.application import max_replicas, model_application
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings, is_model_application
from deployments.serving.deploy_errors import failed_starts

log = logging.getLogger("ray.serve")

UNREACHABLE = (RayError, RayServeException, TimeoutError)
# RECOVERING: it runs, and a controller that was restarted does not know it yet.
ANSWERING_STATES = {
    ReplicaState.RUNNING,
    ReplicaState.UPDATING,
    ReplicaState.RECOVERING,
    ReplicaState.PENDING_MIGRATION,
}


Applications = Mapping[str, Mapping[str, Any]]  # as Serve describes them


@dataclass(frozen=True, slots=True)
class DeployedReplica:
    """`node` is the IP address of its node, and `node_id` Ray's name of that; "" without one."""

    replica_id: str
    state: ReplicaState
    node: str
    node_id: str


class LoadError(Exception):
    """The model can't be loaded; the message says why."""


@dataclass(frozen=True, slots=True)
class DeployedApplication:
    """A model's application, as far as Serve knows it.

    running: ids of the replicas that take requests; `stopping`: of those that end what they have.
    replicas: all, also those that start.
    target: how many replicas Serve means it to have.
    failed_starts: of replicas, one after the other.
    deployed_at: in seconds of Unix time.
    """

    status: ApplicationStatus
    message: str = ""
    running: frozenset[str] = frozenset()
    stopping: frozenset[str] = frozenset()
    replicas: tuple[DeployedReplica, ...] = ()
    target: int = 1
    failed_starts: int = 0
    deployed_at: float = 0.0


def read_applications() -> dict[str, DeployedApplication]:
    """All models' applications. Raises one of UNREACHABLE."""
    return models_in(_read_details())


def read_applications_as(replica_id: str) -> tuple[dict[str, DeployedApplication], bool]:
    """All models' applications, and whether this replica of the router is to stay, at one moment.

    Raises one of UNREACHABLE.
    """
    details = _read_details()
    return models_in(details), is_current(replica_id, details)


def models_in(applications: Applications) -> dict[str, DeployedApplication]:
    return {name: _read(it) for name, it in applications.items() if _is_ours(name, it)}


def taken_over(replica_id: str) -> list[str]:
    """Applications of models that were deployed before this replica's own application was, the
    last time: by a graph that ran here before. Raises one of UNREACHABLE.
    """
    return older_models(replica_id, _read_details())


def deployed_at(replica_id: str) -> float:
    """When this replica's own application was deployed, the last time, in seconds of Unix time.

    Raises one of UNREACHABLE.
    """
    own = _own_application(replica_id, _read_details())
    return time.time() if own is None else float(own["last_deployed_time_s"])


def older_models(replica_id: str, applications: Applications) -> list[str]:
    own = _own_application(replica_id, applications)
    if own is None:
        return []
    since = own["last_deployed_time_s"]
    found = models_in(applications).items()
    return [name for name, it in found if it.deployed_at and it.deployed_at < since]


def _own_application(replica_id: str, applications: Applications) -> Mapping[str, Any] | None:
    own = (it for name, it in applications.items() if is_current(replica_id, {name: it}))
    return next(own, None)


def is_current(replica_id: str, applications: Applications) -> bool:
    """Whether the replica is to stay. Serve lists no replicas of an application that it deletes."""
    deployments = [d for it in applications.values() for d in it["deployments"].values()]
    replicas = [replica for deployment in deployments for replica in deployment["replicas"]]
    return any(
        replica["replica_id"] == replica_id and replica["state"] != ReplicaState.STOPPING
        for replica in replicas
    )


def deploy(settings: ModelSettings) -> None:
    """Returns before the model is loaded. Raises LoadError."""
    _deploy(settings, lambda: None)


def redeploy(settings: ModelSettings) -> None:
    """Deploys new settings. Replicas that need no change stay. Raises LoadError."""
    _deploy(settings, lambda: _read_deployed(settings))


def _deploy(settings: ModelSettings, find: Callable[[], DeploymentInfo | None]) -> None:
    try:
        there = find()
        rank_cpus = None if there is None else current_rank_cpus(settings, there)
        model = model_application(settings, rank_cpus, is_new=there is None)
        target = RunTarget(model, settings.application, route_prefix=None)
        run_many(
            [target],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )
    except (*UNREACHABLE, RuntimeError, ValueError, TypeError) as error:
        raise LoadError(str(error)) from error


def delete(application: str) -> None:
    """Returns at once; replicas end the streams that they have. Raises one of UNREACHABLE."""
    serve.delete(application, _blocking=False)


def model_handle(settings: ModelSettings) -> DeploymentHandle:
    """Raises RayServeException when the model is not deployed."""
    try:
        return serve.get_deployment_handle(MODEL_DEPLOYMENT, settings.application)
    except KeyError as error:
        raise RayServeException(f"{settings.application} is not deployed") from error


def current_rank_cpus(settings: ModelSettings, there: DeploymentInfo) -> float | None:
    """The CPUs of a deployed rank, if the settings are the deployed ones: another number, because a
    node has come or gone, would replace the replicas.
    """
    config = there.deployment_config
    scaling = config.autoscaling_config
    most = config.num_replicas if scaling is None else scaling.max_replicas
    if there.version != settings.version or most != max_replicas(settings):
        return None
    cpus: float | None = there.replica_config.ray_actor_options.get("num_cpus")
    return cpus


def _read_details() -> Applications:
    applications: Applications = _get_global_client().get_serve_details()["applications"]
    return applications


def _read_deployed(settings: ModelSettings) -> DeploymentInfo | None:
    """The model's deployment as it is now; None without one."""
    try:
        client = _get_global_client()
        there, _ = client.get_deployment_info(MODEL_DEPLOYMENT, settings.application)
    except KeyError:
        return None
    return there


def _is_ours(name: str, details: Mapping[str, Any]) -> bool:
    """Serve says nothing of the deployments of an application that it deletes."""
    leaving = details["status"] == ApplicationStatus.DELETING
    return is_model_application(name) and (leaving or MODEL_DEPLOYMENT in details["deployments"])


def _read(details: Mapping[str, Any]) -> DeployedApplication:
    model = details["deployments"].get(MODEL_DEPLOYMENT)
    status = ApplicationStatus(details["status"])
    if model is None:
        return DeployedApplication(status)
    deployed_at = details["last_deployed_time_s"]
    replicas = model["replicas"]
    found = tuple(map(_read_replica, replicas))
    return DeployedApplication(
        status,
        model["message"],
        frozenset(replica.replica_id for replica in found if replica.state in ANSWERING_STATES),
        frozenset(
            replica.replica_id for replica in found if replica.state is ReplicaState.STOPPING
        ),
        found,
        model["target_num_replicas"],
        failed_starts(model["message"]),
        deployed_at,
    )


def _read_replica(details: Mapping[str, Any]) -> DeployedReplica:
    """Serve knows of no node before the replica's actor has one."""
    return DeployedReplica(
        details["replica_id"],
        ReplicaState(details["state"]),
        details.get("node_ip") or "",
        details.get("node_id") or "",
    )
