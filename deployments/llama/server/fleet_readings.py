"""The numbers of the fleet page, from readings of all counters: sums, rates and quantiles.

Pure: it is given readings, and calls nobody. A counter counts from the first reading of the window
that has it, so that a replica that comes, goes or starts over adds nothing that it did before.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deployments.contract.replica_status import FleetStatus, ReplicaReport, ReplicaStatus
from deployments.ingress.metrics import FAST_BUCKETS, Latencies
from deployments.ingress.routes.model_status import status_object

LATENCY_WINDOW_S = 60.0
RATE_WINDOW_S = 10.0
QUANTILES = {"p50": 0.5, "p99": 0.99}
SUMS: Mapping[str, Callable[[ReplicaReport], int]] = {
    "running": lambda report: report.running,
    "waiting": lambda report: report.waiting,
    "pages_used": lambda report: report.pages_used,
    "pages_total": lambda report: report.pages_total,
    "preemptions": lambda report: report.preemptions,
    "tokens_generated": lambda report: report.tokens_generated,
}
Counts = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReading:
    """at: of a monotonic clock. time: in seconds of Unix time.
    latencies: by the id of an ingress replica, and by model.
    """

    at: float
    time: float
    fleet: FleetStatus
    latencies: Mapping[str, Mapping[str, Latencies]]

    def tokens(self, model: str | None) -> Iterable[tuple[str, Counts]]:
        """Tokens generated, by replica; of all models for None."""
        for status, replicas in self.fleet.models:
            if model in (None, status.name):
                for replica in replicas:
                    if replica.report is not None:
                        yield replica.replica_id, (float(replica.report.tokens_generated),)

    def waits(self, field: str, model: str | None) -> Iterable[tuple[str, Counts]]:
        """Counts of a field of Latencies, by ingress replica and model; of all models for None."""
        for replica, by_model in self.latencies.items():
            for name, latencies in by_model.items():
                if model in (None, name):
                    yield f"{replica} {name}", getattr(latencies, field)


class Readings:
    """The readings of the last LATENCY_WINDOW_S, the newest one last."""

    def __init__(self) -> None:
        self._readings: deque[FleetReading] = deque()

    def add(self, reading: FleetReading) -> None:
        self._readings.append(reading)
        while self._readings[0].at < reading.at - LATENCY_WINDOW_S:
            self._readings.popleft()

    def described(self) -> object:
        """The JSON of the newest one."""
        last = self._readings[-1]
        models = [
            {
                "id": status.name,
                "status": status_object(status),
                **_sums(replicas),
                **self._rates(status.name),
                "tiers": _tiers(replicas),
                "replicas": [_replica(replica) for replica in replicas],
            }
            for status, replicas in last.fleet.models
        ]
        everyone = [replica for _, replicas in last.fleet.models for replica in replicas]
        return {
            "time": round(last.time, 3),
            "uptime_s": round(max(0.0, last.time - last.fleet.started_at), 3),
            "window_s": LATENCY_WINDOW_S,
            "can_download": last.fleet.can_download,
            **_sums(everyone),
            **self._rates(None),
            "models": models,
        }

    def _rates(self, model: str | None) -> Mapping[str, object]:
        recent = [
            reading
            for reading in self._readings
            if reading.at >= self._readings[-1].at - RATE_WINDOW_S
        ]
        span = recent[-1].at - recent[0].at
        tokens = _added([reading.tokens(model) for reading in recent])
        return {
            "tokens_per_second": round(tokens[0] / span, 3) if tokens and span else None,
            "time_to_first_token_s": self._quantiles("first_token", model),
            "inter_token_latency_s": self._quantiles("between_tokens", model),
        }

    def _quantiles(self, field: str, model: str | None) -> Mapping[str, float] | None:
        counts = _added([reading.waits(field, model) for reading in self._readings])
        if not counts or not counts[-1]:
            return None
        return {name: quantile(counts, share) for name, share in QUANTILES.items()}


def quantile(counts: Sequence[float], share: float) -> float:
    """Estimates a quantile from a histogram of FAST_BUCKETS, as Prometheus does.

    Within a bucket the values are taken to be spread evenly, and those above the last bound to be
    equal to it.
    """
    rank, lower, below = share * counts[-1], 0.0, 0.0
    for upper, count in zip(FAST_BUCKETS, counts, strict=False):
        if count >= rank:
            within = (rank - below) / (count - below) if count > below else 1.0
            return round(lower + (upper - lower) * within, 6)
        lower, below = upper, count
    return lower


def _added(readings: Iterable[Iterable[tuple[str, Counts]]]) -> list[float]:
    """Adds up the rises of all counters from first to last reading; empty without any counters."""
    first: dict[str, Counts] = {}
    last: dict[str, Counts] = {}
    for reading in readings:
        last = dict(reading)
        for name, counts in last.items():
            if any(now < then for now, then in zip(counts, first.get(name, ()), strict=False)):
                first[name] = counts  # it started over
            first.setdefault(name, counts)
    risen = [
        [now - then for now, then in zip(counts, first[name], strict=True)]
        for name, counts in last.items()
    ]
    return [sum(column) for column in zip(*risen, strict=True)]


def _sums(replicas: Iterable[ReplicaStatus]) -> Mapping[str, int]:
    reports = [replica.report for replica in replicas if replica.report is not None]
    return {name: sum(map(count, reports)) for name, count in SUMS.items()}


def _tiers(replicas: Iterable[ReplicaStatus]) -> Mapping[str, Mapping[str, int]]:
    """Bytes and tokens found of each tier. Replicas of a node have one folder together."""
    bytes_by_node: dict[tuple[str, str], int] = {}
    found: dict[str, dict[str, int]] = {}
    for replica in replicas:
        for tier in replica.report.tiers if replica.report else ():
            node = tier.name, replica.node_id
            bytes_by_node[node] = max(bytes_by_node.get(node, 0), tier.n_bytes)
            counts = found.setdefault(tier.name, {"bytes": 0, "hit_tokens": 0})
            counts["hit_tokens"] += tier.hit_tokens
    for (tier_name, _), n_bytes in bytes_by_node.items():
        found[tier_name]["bytes"] += n_bytes
    return found


def _replica(status: ReplicaStatus) -> object:
    report = status.report
    return {
        "id": status.replica_id,
        "node": status.node,
        "node_id": status.node_id,
        "state": status.state.value,
        **{name: None if report is None else count(report) for name, count in SUMS.items()},
        "tiers": _tiers([status]),
    }
