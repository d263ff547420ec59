"""The metrics of `/metrics` once more through Ray's exporter, for Ray's Prometheus and Grafana.

They are copied every few seconds and cost a token nothing. A histogram goes as what `/metrics` says
of it, `_bucket` (by `le`), `_sum` and `_count`: Ray's own would guess the sum from the buckets. All
of them go as gauges, because a counter of Ray's that is nothing yet is not there, and a quantile
needs the empty buckets too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ray.util.metrics import Counter, Gauge

from deployments.ingress.metrics import Family

log = logging.getLogger("ray.serve")

PERIOD_S = 5.0  # Ray forgets a gauge that says nothing for 20 s
RAY_PREFIX = "ray_"  # of all that Ray exports
Samples = Callable[[], Awaitable[tuple[Mapping[str, str], list[Family]]]]


class Mirror:
    """Belongs to one process, whose counters never fall."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._recorded: dict[tuple[str, tuple[str, ...]], float] = {}

    def record(self, labels: Mapping[str, str], families: Iterable[Family]) -> None:
        for family in families:
            for sample, own, value in family.samples:
                tags = {**labels, **own}
                if family.kind != "counter":
                    self._gauge(sample, family.documentation, tags).set(value, tags)
                else:
                    self._advance(counter_name(sample), family.documentation, tags, value)

    def _gauge(self, name: str, text: str, tags: Mapping[str, str]) -> Gauge:
        if name not in self._gauges:
            self._gauges[name] = Gauge(name, text, tuple(tags))
        return self._gauges[name]

    def _advance(self, name: str, text: str, tags: Mapping[str, str], value: float) -> None:
        if name not in self._counters:
            self._counters[name] = Counter(name, text, tuple(tags))
        series = name, tuple(tags.values())
        grown = value - self._recorded.get(series, 0.0)
        if grown > 0:  # Ray refuses to add nothing
            self._counters[name].inc(grown, tags)
            self._recorded[series] = value


def counter_name(sample: str) -> str:
    """Ray puts the `_total` of a counter there itself."""
    return sample.removesuffix("_total")


def exported_names(family: Family) -> set[str]:
    """What Ray's Prometheus calls the samples of a family."""
    samples = (sample for sample, _, _ in family.samples)
    if family.kind != "counter":
        return {RAY_PREFIX + sample for sample in samples}
    return {f"{RAY_PREFIX}{counter_name(sample)}_total" for sample in samples}


async def mirror(samples: Samples) -> None:
    """Does so until it is cancelled; a reading that fails is logged, and the next one is tried."""
    copy = Mirror()
    while True:
        try:
            await asyncio.to_thread(copy.record, *await samples())
        except Exception:
            log.exception("metrics did not reach Ray's exporter")
        await asyncio.sleep(PERIOD_S)
