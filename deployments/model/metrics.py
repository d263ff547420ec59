"""The metrics of a replica as families."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from deployments.contract.replica_status import TierSize
from deployments.telemetry.metric_families import MetricFamily

if TYPE_CHECKING:  # its module imports torch
    from deployments.engine.stats import Durations, EngineStats

GAUGES = {
    "max_running": ("manta_max_running_requests", "Sequences that may hold pages at once."),
    "active_requests": ("manta_running_requests", "Sequences that hold pages."),
    "waiting_requests": ("manta_waiting_requests", "Accepted sequences without pages."),
    "cache_usage": ("manta_kv_cache_usage_ratio", "Share of KV pages held by sequences."),
    "pages_used": ("manta_kv_pages_used", "KV pages held by sequences."),
    "pages_total": ("manta_kv_pages", "KV pages in all."),
    "checkpoints": ("manta_checkpoints", "States of layers that are kept for prefixes."),
    "checkpoint_bytes": ("manta_checkpoint_bytes", "Memory of these states."),
    "pending_tokens": ("manta_pending_prompt_tokens", "Prompt tokens not computed yet."),
    "context_tokens": ("manta_context_tokens", "Tokens of accepted sequences."),
    "prompt_throughput": (
        "manta_prompt_throughput",
        "Prompt tokens computed a second, in the last minute's steps that had any.",
    ),
    "generation_throughput": (
        "manta_generation_throughput",
        "Tokens drawn a second, in the last minute's steps that decoded.",
    ),
}
COUNTERS = {
    "total_requests": ("manta_engine_requests", "Sequences accepted."),
    "aborted_requests": (
        "manta_engine_aborted_requests",
        "Sequences that were left: by their clients, or at a stop string.",
    ),
    "tokens_generated": ("manta_engine_generation_tokens", "Tokens drawn."),
    "prompt_tokens": ("manta_prefix_cache_queries", "Prompt tokens looked up."),
    "cached_tokens": ("manta_prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    "checkpoints_saved": ("manta_checkpoints_saved", "States kept for prefixes."),
    "checkpoints_restored": ("manta_checkpoints_restored", "Sequences that began at one of them."),
    "media_encoded": ("manta_engine_media_encoded", "Images and sounds that were encoded."),
    "media_cache_hits": (
        "manta_engine_media_cache_hits",
        "Images and sounds of sequences that found them encoded.",
    ),
    "preemptions": ("manta_preemptions", "Sequences set back because pages ran out."),
    "steps": ("manta_engine_steps", "Forward passes."),
    "failed_steps": ("manta_engine_failed_steps", "Forward passes that raised."),
    "retried_rows": ("manta_engine_retried_rows", "Rows of those that were computed again."),
    "drafts": ("manta_engine_drafts", "Drafts that steps have checked, each of one sequence."),
    "drafted_tokens": ("manta_engine_drafted_tokens", "Tokens guessed ahead of steps."),
    "accepted_tokens": ("manta_engine_accepted_tokens", "Of them those that were right."),
}


# Of the KV cache; fields of EngineStats begin with kv_TIER_. Remote are other replicas.
TIERS = ("disk", "remote")
KEPT_IN = ("disk",)  # those that something is written to
TIER_GAUGES = {
    "cost": (
        "manta_kv_restore_cost",
        "Time to bring a token from a tier over the time to compute it.",
    )
}
TIER_COUNTERS = {
    "hit_tokens": ("manta_kv_tier_hit_tokens", "Prompt tokens that came from it."),
    "read_bytes": ("manta_kv_tier_read_bytes", "Bytes read from it."),
    "corrupt": ("manta_kv_tier_corrupt", "Files or parcels that were not what they were."),
    "declined": (
        "manta_kv_tier_declined",
        "Prefixes that were there, and were faster computed than read.",
    ),
}
KEPT_GAUGES = {"bytes": ("manta_kv_tier_bytes", "Bytes in a tier of the KV cache.")}
KEPT_COUNTERS = {
    "written_bytes": ("manta_kv_tier_written_bytes", "Bytes written to it."),
    "dropped_bytes": (
        "manta_kv_tier_dropped_bytes",
        "Bytes that were not written in time, or could not be.",
    ),
}
RESTORE_SECONDS = "manta_kv_restore_seconds"
ACCEPTED_BY_POSITION = "manta_engine_accepted_tokens_per_position"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """Bytes of a replica's device: those that the replica uses, and all."""

    used: int
    total: int


def with_past(stats: "EngineStats", past: "EngineStats") -> "EngineStats":
    """The gauges of `stats`, and counters of both."""
    by_position = zip_longest(stats.accepted_by_position, past.accepted_by_position, fillvalue=0)
    return replace(
        stats,
        **{name: getattr(stats, name) + getattr(past, name) for name in COUNTERS},
        **{key: value for tier in TIERS for key, value in _tier_with_past(tier, stats, past)},
        accepted_by_position=[sum(counts) for counts in by_position],
    )


def tier_sizes(stats: "EngineStats") -> tuple[TierSize, ...]:
    """The tiers that there are and that something is written to."""
    return tuple(
        TierSize(tier, *(getattr(stats, f"kv_{tier}_{name}") for name in ("bytes", "hit_tokens")))
        for tier in KEPT_IN
        if _durations(tier, stats) is not None
    )


def tier_counters(tier: str) -> Mapping[str, tuple[str, str]]:
    """Names and texts of a tier's counters, by the ends of their fields' names."""
    return TIER_COUNTERS | (KEPT_COUNTERS if tier in KEPT_IN else {})


def tier_gauges(tier: str) -> Mapping[str, tuple[str, str]]:
    """The same of its gauges."""
    return TIER_GAUGES | (KEPT_GAUGES if tier in KEPT_IN else {})


def _tier_with_past(
    tier: str, stats: "EngineStats", past: "EngineStats"
) -> Iterator[tuple[str, Any]]:
    for name in tier_counters(tier):
        key = f"kv_{tier}_{name}"
        yield key, getattr(stats, key) + getattr(past, key)
    now, before = _durations(tier, stats), _durations(tier, past)
    yield f"kv_{tier}_restore_seconds", now + before if now and before else now or before


def _durations(tier: str, stats: "EngineStats") -> "Durations | None":
    """Durations of reads from a tier; None: there is no such tier."""
    durations: Durations | None = getattr(stats, f"kv_{tier}_restore_seconds")
    return durations


def engine_families(stats: "EngineStats") -> list[MetricFamily]:
    values = stats.as_dict()
    gauges = [_gauge(name, text, values[key]) for key, (name, text) in GAUGES.items()]
    counters = [
        MetricFamily(name, text, "counter", ((f"{name}_total", {}, values[key]),))
        for key, (name, text) in COUNTERS.items()
    ]
    tiers = [family for tier in TIERS for family in _tier_families(tier, stats)]
    return [*gauges, *counters, *tiers, *_by_position(stats.accepted_by_position)]


def _tier_families(tier: str, stats: "EngineStats") -> list[MetricFamily]:
    """None where there is no such tier."""
    durations, labels = _durations(tier, stats), {"tier": tier}
    if durations is None:
        return []
    text = "Time of reads from a tier of the KV cache."
    samples = tuple(_histogram(RESTORE_SECONDS, labels, durations))
    families = [MetricFamily(RESTORE_SECONDS, text, "histogram", samples)]
    tables = ("gauge", "", tier_gauges(tier)), ("counter", "_total", tier_counters(tier))
    for kind, end, table in tables:
        for key, (name, text) in table.items():
            value = float(getattr(stats, f"kv_{tier}_{key}"))
            families.append(MetricFamily(name, text, kind, ((f"{name}{end}", labels, value),)))
    return families


def _histogram(
    name: str, labels: Mapping[str, str], durations: "Durations"
) -> Iterator[tuple[str, dict[str, str], float]]:
    n = 0
    for bound, count in durations.by_bound():
        n += count
        yield f"{name}_bucket", {**labels, "le": bound}, float(n)
    yield f"{name}_count", {**labels}, float(n)
    yield f"{name}_sum", {**labels}, durations.seconds


def _by_position(counts: Sequence[int]) -> list[MetricFamily]:
    """None before something was drafted and right."""
    if not counts:
        return []
    samples = tuple(
        (f"{ACCEPTED_BY_POSITION}_total", {"position": str(position)}, float(n))
        for position, n in enumerate(counts)
    )
    text = "Guessed tokens that were right, by their position in their drafts, from 0."
    return [MetricFamily(ACCEPTED_BY_POSITION, text, "counter", samples)]


def replica_families(sleeping: bool, gpu: GpuMemory | None) -> list[MetricFamily]:
    families = [_gauge("manta_sleeping", "Whether weights and pages are given up.", sleeping)]
    if gpu is not None:
        families += [
            _gauge("manta_gpu_memory_bytes", "GPU memory that the replica has taken.", gpu.used),
            _gauge("manta_gpu_memory_total_bytes", "Memory of the replica's GPU.", gpu.total),
        ]
    return families


def _gauge(name: str, text: str, value: float) -> MetricFamily:
    return MetricFamily(name, text, "gauge", ((name, {}, float(value)),))
