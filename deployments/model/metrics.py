"""An engine's counters and gauges as Prometheus families."""

from typing import TYPE_CHECKING

from deployments.ingress.metrics import Family

if TYPE_CHECKING:  # its module imports torch
    from deployments.engine.scheduler import EngineStats

GAUGES = {
    "active_requests": ("manta_running_requests", "Sequences that hold pages."),
    "waiting_requests": ("manta_waiting_requests", "Accepted sequences without pages."),
    "cache_usage": ("manta_kv_cache_usage_ratio", "Share of KV pages held by sequences."),
    "pages_used": ("manta_kv_pages_used", "KV pages held by sequences."),
    "pages_total": ("manta_kv_pages", "KV pages in all."),
}
COUNTERS = {
    "total_requests": ("manta_engine_requests", "Sequences accepted."),
    "aborted_requests": ("manta_engine_aborted_requests", "Sequences that were left."),
    "tokens_generated": ("manta_engine_generation_tokens", "Tokens drawn."),
    "prompt_tokens": ("manta_prefix_cache_queries", "Prompt tokens looked up."),
    "cached_tokens": ("manta_prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    "preemptions": ("manta_preemptions", "Sequences set back because pages ran out."),
    "steps": ("manta_engine_steps", "Forward passes."),
    "failed_steps": ("manta_engine_failed_steps", "Forward passes that raised."),
}


def engine_families(stats: "EngineStats") -> list[Family]:
    values = stats.as_dict()
    gauges = [
        Family(name, text, "gauge", ((name, {}, values[key]),))
        for key, (name, text) in GAUGES.items()
    ]
    counters = [
        Family(name, text, "counter", ((f"{name}_total", {}, values[key]),))
        for key, (name, text) in COUNTERS.items()
    ]
    return gauges + counters
