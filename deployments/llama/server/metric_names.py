"""Metrics of engines under llama-server's names, for each replica.

They are not summed: a sum falls whenever a replica stops or does not answer, and rates read a
falling counter as a restart. llama-server's metrics that no engine measures are left out: seconds.
"""

from collections.abc import Iterable, Mapping

from deployments.telemetry.metric_families import MetricFamily

# llama-server's name, help and type, and our samples: the first, minus the second.
Row = tuple[str, str, str, str, str | None]
FAMILIES: tuple[Row, ...] = (
    (
        "prompt_tokens",
        "Number of prompt tokens processed, excluding cached tokens",
        "counter",
        "manta_prefix_cache_queries_total",
        "manta_prefix_cache_hits_total",
    ),
    (
        "prompt_tokens_cached",
        "Number of prompt tokens reused from the cache",
        "counter",
        "manta_prefix_cache_hits_total",
        None,
    ),
    (
        "tokens_predicted",
        "Number of generation tokens processed",
        "counter",
        "manta_engine_generation_tokens_total",
        None,
    ),
    ("n_decode", "Number of decode calls", "counter", "manta_engine_steps_total", None),
    (
        "spec_decode_num_drafts",
        "Number of drafts",
        "counter",
        "manta_engine_drafts_total",
        None,
    ),
    (
        "spec_decode_num_draft_tokens",
        "Number of tokens guessed ahead",
        "counter",
        "manta_engine_drafted_tokens_total",
        None,
    ),
    (
        "spec_decode_num_accepted_tokens",
        "Number of tokens guessed ahead and accepted",
        "counter",
        "manta_engine_accepted_tokens_total",
        None,
    ),
    (
        "prompt_tokens_seconds",
        "Average prompt throughput in tokens/s",
        "gauge",
        "manta_prompt_throughput",
        None,
    ),
    (
        "predicted_tokens_seconds",
        "Average generation throughput in tokens/s",
        "gauge",
        "manta_generation_throughput",
        None,
    ),
    (
        "requests_processing",
        "Number of requests processing",
        "gauge",
        "manta_running_requests",
        None,
    ),
    (
        "requests_deferred",
        "Number of requests deferred",
        "gauge",
        "manta_waiting_requests",
        None,
    ),
)


# Of our name: with a label.
BY_POSITION = "manta_engine_accepted_tokens_per_position"
PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos"


def llamacpp_families(families: Iterable[MetricFamily]) -> list[MetricFamily]:
    """The families of one process; empty if it has no engine."""
    families = [*families]
    values = {name: value for family in families for name, _, value in family.samples}
    found = [_family(values, *row) for row in FAMILIES if row[3] in values]
    return found + [_per_position(family) for family in families if family.name == BY_POSITION]


def _per_position(family: MetricFamily) -> MetricFamily:
    samples = tuple((f"{PER_POSITION}_total", labels, n) for _, labels, n in family.samples)
    return family._replace(name=PER_POSITION, samples=samples)


def _family(
    values: Mapping[str, float], name: str, text: str, kind: str, added: str, taken: str | None
) -> MetricFamily:
    value = values[added] - (values[taken] if taken else 0.0)
    sample = f"llamacpp:{name}_total" if kind == "counter" else f"llamacpp:{name}"
    return MetricFamily(f"llamacpp:{name}", text, kind, ((sample, {}, value),))
