"""Metrics as plain values that processes can send, and their text for Prometheus."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricFamily(NamedTuple):
    """One metric of one process as plain values."""

    name: str
    documentation: str
    kind: str
    samples: tuple[tuple[str, dict[str, str], float], ...]


class _MergedCollector(Collector):
    def __init__(self, parts: Iterable[tuple[Mapping[str, str], Iterable[MetricFamily]]]) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for labels, part in self._parts:
            for name, documentation, kind, samples in part:
                family = families.setdefault(name, Metric(name, documentation, kind))
                for sample, own, value in samples:
                    family.add_sample(sample, {**labels, **own}, value)
        return families.values()


def render(parts: Iterable[tuple[Mapping[str, str], Iterable[MetricFamily]]]) -> bytes:
    """Prometheus text of many processes' samples; each part's labels tell its process apart."""
    merged = CollectorRegistry()
    merged.register(_MergedCollector(list(parts)))
    return prometheus_client.generate_latest(merged)
