"""Serve's description of applications: what is read from it, and what is kept, without Ray."""

import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ray import serve
from ray.serve._private.deployment_info import DeploymentInfo
from ray.serve._private.deployment_state import DeploymentState

from deployments.model.application import cpus_per_replica, replicas_of
from deployments.model.settings import MODEL_DEPLOYMENT, Autoscaling, ModelSettings
from deployments.router.lifecycle import applications
from deployments.router.lifecycle.applications import (
    current_rank_cpus,
    deploy,
    is_current,
    models_in,
    older_models,
    redeploy,
)
from deployments.serving.deploy_errors import failed_starts

MODEL = ModelSettings(name="m", path="/m")


def there(settings: ModelSettings, rank_cpus: float = 3.0) -> DeploymentInfo:
    """Returns what Serve keeps of a deployment from when the cluster had other nodes."""
    return info_of(replicas_of(settings, rank_cpus))


def info_of(deployed: serve.Deployment) -> DeploymentInfo:
    return DeploymentInfo(
        deployed._deployment_config, deployed._replica_config, 0, "", version=deployed.version
    )


def test_the_cores_of_what_runs_stay_though_the_nodes_have_changed() -> None:
    scaled = replace(MODEL, autoscaling=Autoscaling(max_replicas=4))
    for settings in (MODEL, scaled):
        assert current_rank_cpus(settings, there(settings)) == 3.0
    assert current_rank_cpus(replace(MODEL, stop_timeout_s=1), there(MODEL)) == 3.0
    resources = replicas_of(MODEL, 3.0).ray_actor_options
    assert resources is not None
    assert resources["num_cpus"] == 3.0


@pytest.mark.parametrize(
    "changed",
    [
        replace(MODEL, path="/other"),
        replace(MODEL, num_cpus=2),
        replace(MODEL, num_replicas=2),
        replace(MODEL, autoscaling=Autoscaling(max_replicas=4)),
    ],
)
def test_the_cores_of_what_runs_stay_only_while_its_settings_do(changed: ModelSettings) -> None:
    assert current_rank_cpus(changed, there(MODEL)) is None


@pytest.mark.parametrize(
    ("nodes", "num_replicas", "cores"),
    [
        ([8.0], 1, 4),
        ([8.0], 2, 2),
        ([8.0, 8.0], 2, 4),
        ([0.0, 8.0], 2, 2),  # the head runs nothing
        ([1.0], 3, 1),
        ([0.0], 1, 1),
        ([], 1, 1),
    ],
)
def test_replicas_share_half_of_the_cores_of_nodes_that_have_any(
    nodes: list[float], num_replicas: int, cores: int
) -> None:
    assert cpus_per_replica(nodes, num_replicas) == cores


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> list[serve.Deployment]:
    """Models as Serve is given them; it looks for what there is in the last one."""
    given: list[serve.Deployment] = []

    def get_deployment_info(name: str, application: str) -> tuple[DeploymentInfo, None]:
        if not given:
            raise KeyError(name)
        return info_of(given[-1]), None

    def run_many(targets: list[serve.RunTarget], **_: object) -> None:
        given.extend(target.target._bound_deployment for target in targets)

    client = SimpleNamespace(get_deployment_info=get_deployment_info)
    monkeypatch.setattr(applications, "_get_global_client", lambda: client)
    monkeypatch.setattr(applications, "run_many", run_many)
    return given


def test_a_changed_model_keeps_the_replicas_that_load_has_called_for(
    deployed: list[serve.Deployment],
) -> None:
    scaling = Autoscaling(min_replicas=0, max_replicas=8)
    settings = replace(MODEL, num_cpus=1, autoscaling=scaling)
    deploy(settings)
    redeploy(replace(settings, autoscaling=replace(scaling, downscale_delay_s=60)))
    configs = [deployment._deployment_config.autoscaling_config for deployment in deployed]
    assert [config.initial_replicas for config in configs] == [1, None]
    assert [config.downscale_delay_s for config in configs] == [300, 60]


def test_a_router_stays_while_serve_lists_it_and_does_not_stop_it() -> None:
    replicas = [
        {"replica_id": "old", "state": "STOPPING"},
        {"replica_id": "new", "state": "STARTING"},
    ]
    router: dict[str, object] = {"deployments": {"Router": {"replicas": replicas}}}
    applications: dict[str, dict[str, object]] = {
        "openai": {"deployments": {}},
        "router": router,
    }
    assert [is_current(replica_id, applications) for replica_id in ("old", "new", "gone")] == [
        False,
        True,
        False,
    ]


def test_serves_message_says_how_many_replicas_in_a_row_did_not_start() -> None:
    """The message is as the installed version of Serve writes it."""
    said = inspect.getsource(DeploymentState)
    assert '"The deployment failed to start "' in said
    assert '"in a row.' in said
    message = "The deployment failed to start 3 times in a row. This may be due to a problem"
    assert (failed_starts(message), failed_starts("")) == (3, 0)


@pytest.mark.parametrize(("deployed_at", "found"), [(1.0, ["model-m"]), (3.0, [])])
def test_what_was_deployed_before_the_router_is_of_a_graph_that_it_takes_over(
    deployed_at: float, found: list[str]
) -> None:
    """A router that has crashed comes back without being deployed."""
    replicas = [
        {"replica_id": "a", "state": "RUNNING", "node_id": "n", "node_ip": "10.0.0.2"},
        {"replica_id": "b", "state": "STARTING", "node_id": None, "node_ip": None},
    ]
    model = {"replicas": replicas, "message": "", "target_num_replicas": 1}
    router = {"replicas": [{"replica_id": "me", "state": "RUNNING"}]}
    applications: dict[str, dict[str, Any]] = {
        "router": {
            "deployments": {"Router": router},
            "last_deployed_time_s": 2.0,
            "status": "RUNNING",
        },
        "model-m": {
            "status": "RUNNING",
            "deployments": {MODEL_DEPLOYMENT: model},
            "last_deployed_time_s": deployed_at,
        },
        "openai": {"deployments": {}, "last_deployed_time_s": 1.0, "status": "RUNNING"},
    }
    assert older_models("me", applications) == found
    (listed,) = models_in(applications).values()
    assert [(replica.replica_id, replica.node) for replica in listed.replicas] == [
        ("a", "10.0.0.2"),
        ("b", ""),
    ]
    assert listed.running == {"a"}
    assert older_models("gone", applications) == []
