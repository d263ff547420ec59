"""The metrics of a replica as families."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from deployments.telemetry.metric_families import MetricFamily

if TYPE_CHECKING:  # its module imports torch
    from deployments.engine.stats import EngineStats

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


READ_TIERS = ("disk", "remote")  # remote: other replicas
# By tier of the KV cache.
TIER_GAUGES = {
    "kv_disk_bytes": ("manta_kv_tier_bytes", "Bytes in a tier of the KV cache.", "disk"),
    **{
        f"kv_{tier}_cost": (
            "manta_kv_restore_cost",
            "Time to bring a token from there over the time to compute it; 0 without it.",
            tier,
        )
        for tier in READ_TIERS
    },
}
TIER_COUNTERS = {
    "kv_disk_written_bytes": ("manta_kv_tier_written_bytes", "Bytes written to it.", "disk"),
    "kv_disk_dropped_bytes": (
        "manta_kv_tier_dropped_bytes",
        "Bytes that were not written in time, or could not be.",
        "disk",
    ),
    **{
        f"kv_{tier}_{key}": (f"manta_{name}", text, tier)
        for key, name, text in (
            ("hit_tokens", "kv_tier_hit_tokens", "Prompt tokens that came from it."),
            ("read_bytes", "kv_tier_read_bytes", "Bytes read from it."),
            ("corrupt", "kv_tier_corrupt", "Files or parcels that were not what they were."),
            (
                "declined",
                "kv_tier_declined",
                "Prefixes that were there, and were faster computed than read.",
            ),
            ("restores", "kv_restores", "Reads of prefixes, as far as they came."),
            ("restore_ms", "kv_restore_milliseconds", "Time of these reads."),
        )
        for tier in READ_TIERS
    },
}


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
        **{
            name: getattr(stats, name) + getattr(past, name) for name in (*COUNTERS, *TIER_COUNTERS)
        },
        accepted_by_position=[sum(counts) for counts in by_position],
    )


def engine_families(stats: "EngineStats") -> list[MetricFamily]:
    values = stats.as_dict()
    gauges = [_gauge(name, text, values[key]) for key, (name, text) in GAUGES.items()]
    counters = [
        MetricFamily(name, text, "counter", ((f"{name}_total", {}, values[key]),))
        for key, (name, text) in COUNTERS.items()
    ]
    tiers = _tier_families(values, TIER_GAUGES, "gauge")
    tiers += _tier_families(values, TIER_COUNTERS, "counter")
    return gauges + counters + tiers + _by_position(stats.accepted_by_position)


def _tier_families(
    values: Mapping[str, float], table: Mapping[str, tuple[str, str, str]], kind: str
) -> list[MetricFamily]:
    end = "_total" if kind == "counter" else ""
    samples: dict[tuple[str, str], list[tuple[str, dict[str, str], float]]] = {}
    for key, (name, text, tier) in table.items():
        sample = f"{name}{end}", {"tier": tier}, float(values[key])
        samples.setdefault((name, text), []).append(sample)
    return [MetricFamily(name, text, kind, tuple(found)) for (name, text), found in samples.items()]


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
