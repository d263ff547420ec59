"""The router's view of the models as Prometheus families."""

from collections.abc import Callable, Iterable

from deployments.contract.model_status import ModelState
from deployments.router.lifecycle.model_entry import ModelEntry
from deployments.telemetry.metric_families import MetricFamily

COUNTERS: dict[str, tuple[str, Callable[[ModelEntry], int]]] = {
    "manta_router_loads": ("Loads begun.", lambda e: e.loads),
    "manta_router_evictions": ("Unloads to make room for another model.", lambda e: e.evictions),
    "manta_router_load_failures": ("Loads that failed.", lambda e: e.failures),
}


def router_families(entries: Iterable[ModelEntry], waiting: int) -> list[MetricFamily]:
    entries = list(entries)
    counters = [
        MetricFamily(
            name, text, "counter", tuple((f"{name}_total", _of(e), count(e)) for e in entries)
        )
        for name, (text, count) in COUNTERS.items()
    ]
    replicas = [family for entry in entries for family in entry.replicas.families()]
    return [_states(entries), _waiting(waiting), *counters, *replicas]


def _of(entry: ModelEntry) -> dict[str, str]:
    return {"model": entry.name}


def _states(entries: Iterable[ModelEntry]) -> MetricFamily:
    name = "manta_model_state"
    samples = tuple(
        (name, {**_of(entry), "state": state.value}, float(entry.state is state))
        for entry in entries
        for state in ModelState
        if state is not ModelState.DOWNLOADING  # before there is an entry
    )
    return MetricFamily(name, "1 for the state that a model is in.", "gauge", samples)


def _waiting(count: int) -> MetricFamily:
    name = "manta_router_waiting_models"
    return MetricFamily(
        name, "Models that wait to be loaded.", "gauge", ((name, {}, float(count)),)
    )
