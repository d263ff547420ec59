"""A model as the router keeps it, and what Serve and a replica may say of it, for tests."""

from ray.serve.schema import ApplicationStatus

from deployments.model.settings import ModelSettings
from deployments.router.lifecycle.applications import DeployedApplication
from deployments.router.lifecycle.capacity import Resources
from deployments.router.lifecycle.model_entry import ModelEntry
from deployments.router.replicas.replica_set import ReplicaSet
from deployments.router.settings import Preset, RoutingSettings

RUNNING = DeployedApplication(ApplicationStatus.RUNNING, running=frozenset("a"))
DEPLOYING = DeployedApplication(ApplicationStatus.DEPLOYING)
DELETING = DeployedApplication(ApplicationStatus.DELETING)
FAILED = DeployedApplication(
    ApplicationStatus.DEPLOY_FAILED, "Traceback\n  File x\nOSError: no such model\nCheck its name."
)


def preset(name: str = "m", *aliases: str, num_replicas: int = 1) -> Preset:
    made = ModelSettings(name=name, path=f"/{name}", num_replicas=num_replicas)
    return Preset(settings=made, aliases=aliases)


def entry() -> ModelEntry:
    return ModelEntry(preset(), Resources(), ReplicaSet("m", RoutingSettings(), lambda: 0.0))


def loaded() -> ModelEntry:
    made = entry()
    made.start(0)
    made.observe(RUNNING, 1)
    return made
