"""A guard never marked ok is an error, and no label takes what a client sends."""

import pytest

from deployments.contract.errors import refused
from deployments.ingress.metrics import MAX_MODEL_LABELS, OTHER_MODELS, Metrics
from deployments.telemetry.metric_families import render


def total(metrics: Metrics, **labels: str) -> float | None:
    return metrics.registry.get_sample_value("manta_requests_total", labels)


ENDED = {"endpoint": "e", "request_type": "unary"}


def test_a_guard_never_marked_is_an_error() -> None:
    metrics = Metrics()
    guard = metrics.guard("e")
    guard.serving("m", stream=False)
    with guard:
        pass
    guard.close()
    assert total(metrics, model="m", **ENDED, status="error", error="cancelled") == 1


def test_a_marked_guard_is_a_success_even_if_sending_fails() -> None:
    metrics = Metrics()
    guard = metrics.guard("e")
    guard.serving("m", stream=False)
    guard.mark_ok()
    with pytest.raises(OSError, match="gone"), guard:
        raise OSError("gone")
    assert total(metrics, model="m", **ENDED, status="success", error="") == 1


def test_refusals_before_a_model_is_known_share_one_label() -> None:
    metrics = Metrics()
    guard = metrics.guard("e")
    with pytest.raises(Exception, match="no"), guard.until_answered():
        raise refused("no")
    ended = {**ENDED, "status": "error", "error": "invalid_request"}
    assert total(metrics, model="unknown", **ended) == 1


def test_very_many_models_fold_into_one_label() -> None:
    metrics = Metrics()
    labels = {metrics.model_label(str(number)) for number in range(MAX_MODEL_LABELS + 5)}
    assert len(labels) == MAX_MODEL_LABELS + 1
    assert OTHER_MODELS in labels
    assert metrics.model_label("0") == "0"


def test_latencies_are_counted_by_token() -> None:
    metrics = Metrics()
    guard = metrics.guard("e")
    guard.serving("m", stream=True)
    for choice, tokens in ((0, 1), (1, 1), (0, 4), (0, 4), (1, 2)):
        guard.produced(choice, tokens)
    guard.used(10, 6, 3)
    read = metrics.registry.get_sample_value
    assert read("manta_time_to_first_token_seconds_count", {"model": "m"}) == 1
    assert read("manta_inter_token_latency_seconds_count", {"model": "m"}) == 2
    assert read("manta_prompt_tokens_total", {"model": "m"}) == 10
    assert read("manta_generation_tokens_total", {"model": "m"}) == 6
    assert read("manta_cached_tokens_total", {"model": "m"}) == 3


def test_what_was_refused_is_none_of_the_tokens_served() -> None:
    metrics = Metrics()
    guard = metrics.guard("e")
    guard.serving("m", stream=True)
    guard.used(10, 0, 0)
    read = metrics.registry.get_sample_value
    assert read("manta_prompt_tokens_total", {"model": "m"}) == 0
    assert read("manta_request_generation_tokens_count", {"model": "m"}) == 0
    assert read("manta_request_duration_seconds_count", {"model": "m"}) == 1
    guard.mark_ok()  # as of an answer of no tokens, that was asked for
    guard.used(10, 0, 0)
    assert read("manta_prompt_tokens_total", {"model": "m"}) == 10


def test_durations_are_of_generations_alone() -> None:
    metrics = Metrics()
    guard = metrics.guard("tokenize")
    guard.serving("m", stream=False)
    with guard:
        guard.mark_ok()
    assert (
        metrics.registry.get_sample_value("manta_request_duration_seconds_count", {"model": "m"})
        == 0
    )


def test_failovers_are_counted_from_nothing_on() -> None:
    metrics = Metrics()
    metrics.guard("e").serving("m", stream=True)
    for mid_stream, phase in enumerate(("before_first_token", "mid_stream")):
        counted = {"model": "m", "phase": phase}
        assert metrics.registry.get_sample_value("manta_failovers_total", counted) == 0
        metrics.failed_over("m", mid_stream=bool(mid_stream))
        assert metrics.registry.get_sample_value("manta_failovers_total", counted) == 1


def test_samples_of_many_processes_render_as_one() -> None:
    parts = []
    for replica in ("a", "b"):
        metrics = Metrics()
        guard = metrics.guard("e")
        guard.serving("m", stream=False)
        parts.append(({"replica": replica}, metrics.samples()))
    text = render(parts).decode()
    assert text.count("# TYPE manta_inflight_requests gauge") == 1
    assert text.count("manta_inflight_requests{") == 2
    assert 'replica="b"' in text
    assert "_created" not in text
