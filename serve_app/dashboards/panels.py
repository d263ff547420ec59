"""The panels of the dashboard: each a title, a unit of Grafana's, and queries with their legends.

Names are those of Ray's Prometheus: ours behind `ray_`.
"""

from typing import NamedTuple

MODEL = 'model=~"$model"'
QUANTILES = (0.5, 0.95, 0.99)


class Query(NamedTuple):
    expression: str
    legend: str


class Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[Query, ...]
    description: str = ""


def panels() -> list[Panel]:
    """Returns the panels in reading order, from left to right."""
    return [*_requests(), *_engines(), *_tiers(), *_fleet()]


def _requests() -> list[Panel]:
    ends = f"sum by (status, error) ({_rate('requests_total')})"
    return [
        Panel("Time to first token", "s", _quantiles("time_to_first_token_seconds")),
        Panel("Inter-token latency", "s", _quantiles("inter_token_latency_seconds")),
        Panel("Requests by status", "reqps", (Query(ends, "{{status}} {{error}}"),)),
        Panel("Requests in flight", "short", (_sum("inflight_requests", "endpoint"),)),
        Panel("Request duration", "s", _quantiles("request_duration_seconds")),
        Panel(
            "Tokens a second",
            "short",
            (
                Query(f"sum by (model) ({_rate('engine_generation_tokens_total')})", DRAWN),
                Query(f"sum by (model) ({_rate('prefix_cache_queries_total')})", OF_PROMPTS),
            ),
        ),
    ]


def _engines() -> list[Panel]:
    hits = f"sum by (model) ({_rate('prefix_cache_hits_total')})"
    looked_up = f"sum by (model) ({_rate('prefix_cache_queries_total')})"
    pages = f"{_metric('kv_pages_used')} / {_metric('kv_pages')}"
    return [
        Panel("Running sequences", "short", (_sum("running_requests", "model, replica"),)),
        Panel("Waiting sequences", "short", (_sum("waiting_requests", "model, replica"),)),
        Panel("KV pages in use", "percentunit", (Query(pages, "{{model}} {{replica}}"),)),
        Panel(
            "Prompt tokens found in the prefix cache",
            "percentunit",
            (Query(f"{hits} / {looked_up}", "{{model}}"),),
        ),
        Panel(
            "Preemptions",
            "ops",
            (Query(f"sum by (model) ({_rate('preemptions_total')})", "{{model}}"),),
            "Sequences set back because pages ran out; many mean that memory is short.",
        ),
    ]


def _tiers() -> list[Panel]:
    hits = f"sum by (model, tier) ({_rate('kv_tier_hit_tokens_total')})"
    looked_up = f"sum by (model) ({_rate('prefix_cache_queries_total')})"
    of_all = f"{hits} / on (model) group_left () {looked_up}"
    return [
        Panel(
            "Prompt tokens that came from a tier",
            "percentunit",
            (Query(of_all, TIER),),
            "Of those looked up. What was in memory is not counted.",
        ),
        Panel(
            "Bytes in tiers",
            "bytes",
            (Query(f"max by (model, tier) ({_metric('kv_tier_bytes')})", TIER),),
            "Of the largest folder of a model's replicas.",
        ),
        Panel(
            "Bytes read from and written to tiers",
            "Bps",
            tuple(
                Query(f"sum by (model, tier) ({_rate(f'kv_tier_{name}_bytes_total')})", legend)
                for name, legend in (
                    ("read", f"{TIER} read"),
                    ("written", f"{TIER} written"),
                    ("dropped", f"{TIER} dropped"),
                )
            ),
            "Dropped is what was pushed out of memory before it was written, or could not be.",
        ),
        Panel(
            "Time of reads from tiers",
            "s",
            _quantiles("kv_restore_seconds"),
        ),
        Panel(
            "Reads that tiers could not give, or would not have paid",
            "ops",
            (
                Query(f"sum by (model, tier) ({_rate('kv_tier_declined_total')})", DECLINED),
                Query(f"sum by (model, tier) ({_rate('kv_tier_corrupt_total')})", CORRUPT),
            ),
        ),
    ]


def _fleet() -> list[Panel]:
    failovers = f"sum by (model) ({_rate('failovers_total')})"
    used = "sum by (instance, GpuIndex) (ray_node_gram_used)"
    state = f"max by (model, state) ({_metric('model_state')})"
    free = "sum by (instance, GpuIndex) (ray_node_gram_available)"
    return [
        Panel(
            "Failovers",
            "ops",
            (Query(failovers, "{{model}}"),),
            "Attempts that lost their replica, and went on with another one.",
        ),
        Panel("Models by state", "short", (Query(f"{state} > 0", "{{model}} {{state}}"),)),
        Panel(
            "GPU memory of replicas",
            "bytes",
            (_sum("gpu_memory_bytes", "model, replica"),),
            "Of a replica's first rank, where it has several.",
        ),
        Panel("GPU memory of nodes", "percentunit", (Query(f"{used} / ({used} + {free})", GPU),)),
    ]


GPU = "{{instance}} {{GpuIndex}}"
TIER = "{{model}} {{tier}}"
DECLINED, CORRUPT = f"{TIER} faster computed", f"{TIER} corrupt files"
DRAWN, OF_PROMPTS = "{{model}} drawn", "{{model}} of prompts"


def _metric(name: str) -> str:
    return f"ray_manta_{name}{{{MODEL}}}"


def _rate(name: str) -> str:
    return f"rate({_metric(name)}[$__rate_interval])"


def _sum(name: str, by: str) -> Query:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return Query(f"sum by ({by}) ({_metric(name)})", legend)


def _quantiles(histogram: str) -> tuple[Query, ...]:
    counted = f"sum by (le, model) ({_rate(histogram + '_bucket')})"
    return tuple(
        Query(f"histogram_quantile({quantile}, {counted})", f"{{{{model}}}} p{quantile * 100:.0f}")
        for quantile in QUANTILES
    )
