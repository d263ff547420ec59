"""A model as a Serve application: number of replicas, resources, what may change in place."""

from collections.abc import Callable, Sequence

import ray
from ray import serve
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from ray.serve.deployment import Application
from ray.serve.handle import DeploymentHandle

from deployments.model.autoscaling import autoscaling_config
from deployments.model.deployment import Model
from deployments.model.settings import ModelSettings
from deployments.serving.draining import DRAIN_CHECK_S, SHORT_DRAINING
from deployments.telemetry.logs import serve_logging_config


def model_application(
    settings: ModelSettings, rank_cpus: float | None = None, is_new: bool = True
) -> Application:
    """The application of a model. Its replicas stay while the version of the settings does.

    `rank_cpus` stands for what the settings and the nodes of now say. `is_new`: nothing of the
    model is deployed.
    """
    model = replicas_of(settings, rank_cpus, is_new).bind(settings)
    # HAProxy balances the first deployment of an application itself, and Serve then does not allow
    # it a request router of its own: another deployment has to come before the model.
    if not RAY_SERVE_ENABLE_HA_PROXY:
        return model
    door = Door.options(  # type: ignore[attr-defined]
        _internal=True, version=settings.version, logging_config=serve_logging_config()
    )
    return door.bind(model)


def replicas_of(
    settings: ModelSettings, rank_cpus: float | None = None, is_new: bool = True
) -> serve.Deployment:
    resources = rank_resources(settings, rank_cpus)
    replicas = Model.options(  # type: ignore[attr-defined]
        _internal=True,
        version=settings.version,
        logging_config=serve_logging_config(),
        ray_actor_options=resources,
        graceful_shutdown_timeout_s=settings.stop_timeout_s,
    )
    if settings.tensor_parallel > 1:
        named = {"CPU": resources["num_cpus"], "GPU": resources["num_gpus"]}
        bundle = {name: amount for name, amount in named.items() if amount}
        replicas = replicas.options(
            placement_group_bundles=[bundle] * settings.tensor_parallel,
            placement_group_strategy="STRICT_PACK",
        )
    if settings.autoscaling is None:
        return replicas.options(num_replicas=settings.num_replicas)
    return replicas.options(autoscaling_config=autoscaling_config(settings.autoscaling, is_new))


@serve.deployment(
    name="Door",
    graceful_shutdown_wait_loop_s=DRAIN_CHECK_S,
    ray_actor_options={"num_cpus": 0, "runtime_env": SHORT_DRAINING},
)
class Door:
    """Does nothing: calls go to the model's own deployment."""

    def __init__(self, model: DeploymentHandle) -> None:
        pass


def max_replicas(settings: ModelSettings) -> int:
    scaling = settings.autoscaling
    return scaling.max_replicas if scaling else settings.num_replicas


def rank_resources(settings: ModelSettings, rank_cpus: float | None = None) -> dict[str, float]:
    """Returns the resources of each rank of a replica."""
    if rank_cpus is None:
        rank_cpus = cpus_of_rank(settings, node_cpus)
    return {"num_cpus": rank_cpus, "num_gpus": settings.num_gpus or 0}


def cpus_of_rank(settings: ModelSettings, nodes: Callable[[], Sequence[float]]) -> float:
    """`nodes` returns the cores of each node. It is called only if the settings give none."""
    cpus = settings.num_cpus
    if cpus is None and settings.num_gpus:
        cpus = settings.tensor_parallel
    elif cpus is None:
        cpus = cpus_per_replica(nodes(), max_replicas(settings))
    return cpus / settings.tensor_parallel


def node_cpus() -> list[float]:
    return [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]


def cpus_per_replica(nodes: Sequence[float], num_replicas: int) -> int:
    """Half of a node's cores, shared by its replicas: ingresses and proxies need the rest.

    A head that is to run nothing has no cores, and takes no replicas.
    """
    cores = [cpus for cpus in nodes if cpus] or [0]
    replicas_a_node = -(-num_replicas // len(cores))
    return max(1, int(max(cores)) // 2 // replicas_a_node)
