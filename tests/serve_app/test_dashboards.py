"""The dashboard asks for what is exported, and its file is what the table says."""

import json
import re
from pathlib import Path

import pytest
from ray.dashboard.modules.metrics import grafana_dashboard_factory as rays
from ray.dashboard.modules.metrics.dashboards.common import DashboardConfig
from ray.dashboard.modules.metrics.default_impl import get_serve_dashboard_config

from deployments.engine.engine import InferenceEngine
from deployments.engine.limits import EngineLimits
from deployments.ingress.metrics import Metrics
from deployments.model.metrics import GpuMemory, engine_families, replica_families
from deployments.router.metrics import router_families
from deployments.telemetry.metric_families import MetricFamily
from deployments.telemetry.ray_exporter import exported_names
from serve_app.dashboards.__main__ import FILE
from serve_app.dashboards.grafana import dashboard
from serve_app.dashboards.panels import panels
from tests.checkpoints import save_checkpoint

DASHBOARD = json.loads(FILE.read_text())
WATCHED = (
    "ray_manta_time_to_first_token_seconds_bucket",
    "ray_manta_inter_token_latency_seconds_bucket",
    "ray_manta_running_requests",
    "ray_manta_waiting_requests",
    "ray_manta_kv_pages_used",
    "ray_manta_prefix_cache_hits_total",
    "ray_manta_kv_tier_hit_tokens_total",
    "ray_manta_kv_tier_bytes",
    "ray_manta_kv_restore_seconds_bucket",
    "ray_manta_preemptions_total",
    "ray_manta_failovers_total",
    "ray_manta_model_state",
    "ray_manta_gpu_memory_bytes",
    "ray_manta_requests_total",
    "ray_node_gram_used",
)


def test_the_file_is_what_the_table_says() -> None:
    assert FILE.read_text() == dashboard(), "run python -m serve_app.dashboards"


def test_panels_stand_beside_each_other_and_have_ids_of_their_own() -> None:
    placed = DASHBOARD["panels"]
    assert len(placed) == len(panels())
    assert len({panel["id"] for panel in placed}) == len(placed)
    corners = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in placed}
    assert len(corners) == len(placed)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in placed)


def test_it_replaces_no_dashboard_of_rays() -> None:
    found = [config for config in vars(rays).values() if isinstance(config, DashboardConfig)]
    theirs = {config.default_uid for config in [*found, get_serve_dashboard_config()]}
    assert len(theirs) > 1
    assert DASHBOARD["uid"] not in theirs


def asked() -> set[str]:
    said = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    said += [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"][1:]]
    return {name for query in said for name in re.findall(r"\bray_\w+", query)}


@pytest.mark.parametrize("name", WATCHED)
def test_it_shows_what_an_operator_watches(name: str) -> None:
    assert name in asked()


def of_an_ingress() -> list[MetricFamily]:
    metrics = Metrics()
    guard = metrics.guard("chat")
    guard.serving("m", stream=True)
    guard.produced(0, 1)
    guard.produced(0, 2)
    guard.used(1, 2, 0)
    guard.close()
    metrics.failed_over("m", mid_stream=True)
    return metrics.samples()


def of_a_replica(folder: Path) -> list[MetricFamily]:
    limits = EngineLimits(cache_disk=str(folder / "kept"))
    with InferenceEngine(str(save_checkpoint(folder)), limits=limits) as engine:
        families = engine_families(engine.core.stats())
    return families + replica_families(False, GpuMemory(used=1, total=2))


def test_all_that_it_asks_for_is_exported(tmp_path: Path) -> None:
    # The state of a model is a sample a model, and a router without models has none.
    families = of_an_ingress() + of_a_replica(tmp_path) + router_families([], 0)
    ours = {name for family in families for name in exported_names(family)}
    states = {f"ray_{family.name}" for family in router_families([], 0)}
    of_ray = {"ray_node_gram_used", "ray_node_gram_available"}
    assert asked() <= ours | states | of_ray
