"""Files that a person deploys on a cluster are valid by Ray's schemas and the server's settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.serve.schema import ServeDeploySchema

from tests.test_pages import ARGUMENTS

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = yaml.safe_load((ROOT / "cluster.yaml").read_text())
MODES = {
    "RAY_SERVE_ENABLE_HA_PROXY",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED",
    # What `ray_actor_options` of these files take the place of sets it, elsewhere.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S",
}


def ray_service() -> Any:
    return yaml.safe_load((ROOT / "serve_app" / "guides" / "rayservice.yaml").read_text())


def fleet() -> ServeDeploySchema:
    return ServeDeploySchema.model_validate(yaml.safe_load(ray_service()["spec"]["serveConfigV2"]))


def test_the_launcher_file_is_valid_by_rays_schema() -> None:
    validate_config(prepare_config(CLUSTER))


def test_a_misspelt_field_of_the_launcher_file_is_no_longer_valid() -> None:
    with pytest.raises(Exception, match="max_worker"):
        validate_config(prepare_config({**CLUSTER, "max_worker": 1}))


def test_every_ray_process_of_the_launcher_file_starts_in_the_fast_modes() -> None:
    for role in ("head", "worker"):
        start = CLUSTER[f"{role}_start_ray_commands"][-1]
        before = start.partition("ray start")[0]
        assert all(f"{mode}=1" in before for mode in MODES)
        assert "MANTA_API_KEY=EDIT" in before
        assert "MANTA_ENCRYPTION_KEY=EDIT" in before


def test_nodes_without_gpus_grow_for_ingresses_and_nodes_with_gpus_for_models() -> None:
    types = CLUSTER["available_node_types"]
    assert types["model"]["resources"]["GPU"] > 0
    assert "ingress" not in types["model"]["resources"]
    assert "GPU" not in types["ingress"]["resources"]
    for name in ("ingress", "model"):
        assert types[name]["min_workers"] < types[name]["max_workers"]


def test_the_service_has_the_operators_form() -> None:
    service = ray_service()
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")
    assert set(service["spec"]) == {"serveConfigV2", "rayClusterConfig"}
    cluster = service["spec"]["rayClusterConfig"]
    assert set(cluster) == {
        "rayVersion",
        "enableInTreeAutoscaling",
        "headGroupSpec",
        "workerGroupSpecs",
    }
    assert set(cluster["headGroupSpec"]) == {"rayStartParams", "template"}
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert set(group) - {"groupName", "replicas", "minReplicas", "maxReplicas"} == {
            "rayStartParams",
            "template",
        }


def containers(cluster: Mapping[str, Any]) -> list[Any]:
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_every_pod_of_the_service_runs_in_the_fast_modes() -> None:
    for container in containers(ray_service()["spec"]["rayClusterConfig"]):
        assert {entry["name"] for entry in container["env"] if entry.get("value") == "1"} == MODES


def test_the_services_applications_are_those_of_serve_yaml_and_take_their_arguments() -> None:
    local = yaml.safe_load((ROOT / "serve_app" / "serve.yaml").read_text())["applications"]
    there = fleet().applications
    named = [(app["name"], app["route_prefix"], app["import_path"]) for app in local]
    assert [(app.name, app.route_prefix, app.import_path) for app in there] == named
    for application in there:
        ARGUMENTS[application.name].model_validate(application.args)


def test_ingresses_of_the_service_ask_for_what_only_their_nodes_have() -> None:
    asked = {
        deployment.name: deployment.ray_actor_options.resources
        for app in fleet().applications
        for deployment in app.deployments
    }
    head = {"node:__internal_head__": 0.001}
    ingress = {name: {"ingress": 1} for name in ("openai", "anthropic", "llama")}
    beside = {"web": {"ingress": 0.001}}  # it takes no ingress's room
    assert asked == {"Router": head, **ingress, **beside}
    groups = ray_service()["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    offers = {g["groupName"]: g["rayStartParams"].get("resources", "") for g in groups}
    assert "ingress" in offers["ingress"]
    assert offers["model"] == ""
