"""Exports the metrics of `/metrics` through Ray, too, for Ray's Prometheus and Grafana.

They are copied every few seconds and cost a token nothing. All of them go as gauges. A counter of
Ray's is not there before it has counted something, so that no rate sees its first event, and its
exporter never forgets one whose process has ended, of which there is one a load of a model. Its
histograms would guess the sum from the buckets: ours goes as what `/metrics` says of it, `_bucket`
(by `le`), `_sum` and `_count`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ray.util.metrics import Gauge

from deployments.telemetry.metric_families import MetricFamily

log = logging.getLogger("ray.serve")

EXPORT_INTERVAL_S = 5.0  # Ray drops a gauge after two of its report intervals, 20 s as a rule
RAY_PREFIX = "ray_"  # of all metrics that Ray exports
Samples = Callable[[], Awaitable[tuple[Mapping[str, str], list[MetricFamily]]]]


class RayExporter:
    """Belongs to one process."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}

    def record(self, labels: Mapping[str, str], families: Iterable[MetricFamily]) -> None:
        for family in families:
            for sample, own, value in family.samples:
                tags = {**labels, **own}
                self._gauge(sample, family.documentation, tags).set(value, tags)

    def _gauge(self, name: str, text: str, tags: Mapping[str, str]) -> Gauge:
        if name not in self._gauges:
            self._gauges[name] = Gauge(name, text, tuple(tags))
        return self._gauges[name]


def exported_names(family: MetricFamily) -> set[str]:
    """The names of a family's samples in Ray's Prometheus."""
    return {RAY_PREFIX + sample for sample, _, _ in family.samples}


async def export_to_ray(samples: Samples) -> None:
    """Runs until it is cancelled. A failed reading is logged, and tried again later."""
    copy = RayExporter()
    while True:
        try:
            await asyncio.to_thread(copy.record, *await samples())
        except Exception:
            log.exception("metrics did not reach Ray's exporter")
        await asyncio.sleep(EXPORT_INTERVAL_S)
