"""The request metrics of an ingress process. No client chooses the value of a label."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.requests import ClientDisconnect

from deployments.contract.errors import Refused
from deployments.telemetry.metric_families import MetricFamily

NO_MODEL = "unknown"  # requests refused before a model was found
OTHER_MODELS = "other"
MAX_MODEL_LABELS = 200

FAST_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
SLOW_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PHASES = ("before_first_token", "mid_stream")  # of a request whose replica is lost
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)


class ModelMetrics(NamedTuple):
    """The metrics of one model that have no label but the model."""

    first_token: Histogram
    between_tokens: Histogram
    duration: Histogram
    prompt_size: Histogram
    output_size: Histogram
    prompt_tokens: Counter
    output_tokens: Counter
    cached_tokens: Counter


class Latencies(NamedTuple):
    """How many values were at most each of FAST_BUCKETS, and how many at all, since the start."""

    first_token: tuple[float, ...]
    between_tokens: tuple[float, ...]


def _counts(histogram: Histogram) -> tuple[float, ...]:
    [family] = histogram.collect()
    return tuple(sample.value for sample in family.samples if sample.name.endswith("_bucket"))


def _model_metrics(registry: CollectorRegistry) -> ModelMetrics:
    """Creates the metrics of no model yet: `labels` makes those of one."""

    def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, ("model",), buckets=buckets, registry=registry)

    def counter(name: str, text: str) -> Counter:
        return Counter(name, text, ("model",), registry=registry)

    first_token = "From the request to its first token."
    gap = "Mean gap between the tokens of a chunk."
    duration = "From a generation's request to its end."
    return ModelMetrics(
        histogram("manta_time_to_first_token_seconds", first_token, FAST_BUCKETS),
        histogram("manta_inter_token_latency_seconds", gap, FAST_BUCKETS),
        histogram("manta_request_duration_seconds", duration, SLOW_BUCKETS),
        histogram("manta_request_prompt_tokens", "Prompt tokens of a request.", TOKEN_BUCKETS),
        histogram(
            "manta_request_generation_tokens", "Tokens generated for a request.", TOKEN_BUCKETS
        ),
        counter("manta_prompt_tokens", "Prompt tokens."),
        counter("manta_generation_tokens", "Tokens generated."),
        counter("manta_cached_tokens", "Prompt tokens that the prefix cache had."),
    )


class Metrics:
    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        request = ("model", "endpoint", "request_type")
        self.requests = Counter(
            "manta_requests",
            "Requests ended; error says why one did not succeed.",
            (*request, "status", "error"),
            registry=self.registry,
        )
        self.inflight = Gauge(
            "manta_inflight_requests", "Requests being answered.", request, registry=self.registry
        )
        self._by_model = _model_metrics(self.registry)
        self.failovers = Counter(
            "manta_failovers",
            "Attempts that lost their replica and went on with another one.",
            ("model", "phase"),
            registry=self.registry,
        )
        self.model_wait = Histogram(
            "manta_model_wait_seconds",
            "What requests waited for a model to come up.",
            ("model",),
            buckets=SLOW_BUCKETS,
            registry=self.registry,
        )
        self._models: set[str] = set()
        self._of_model: dict[str, ModelMetrics] = {}

    def failed_over(self, model: str, *, mid_stream: bool) -> None:
        self.failovers.labels(self.model_label(model), PHASES[mid_stream]).inc()

    def waited(self, model: str, seconds: float) -> None:
        self.model_wait.labels(self.model_label(model)).observe(seconds)

    def of_model(self, label: str) -> ModelMetrics:
        """Looked up once: finding a metric by its labels costs more than adding to it."""
        if label not in self._of_model:
            for phase in PHASES:  # from 0: a rate does not see the first value of a counter
                self.failovers.labels(label, phase)
            self._of_model[label] = ModelMetrics._make(
                metric.labels(label) for metric in self._by_model
            )
        return self._of_model[label]

    def guard(self, endpoint: str) -> "InflightGuard":
        return InflightGuard(self, endpoint)

    def model_label(self, name: str) -> str:
        """`name` is of a known model. After MAX_MODEL_LABELS of them the label is OTHER_MODELS."""
        if name not in self._models and len(self._models) >= MAX_MODEL_LABELS:
            return OTHER_MODELS
        self._models.add(name)
        return name

    def latencies(self) -> dict[str, Latencies]:
        """Returns the latencies by model."""
        return {
            label: Latencies(_counts(metrics.first_token), _counts(metrics.between_tokens))
            for label, metrics in self._of_model.items()
        }

    def samples(self) -> list[MetricFamily]:
        return [
            MetricFamily(
                family.name,
                family.documentation,
                family.type,
                tuple(
                    (sample.name, dict(sample.labels), sample.value) for sample in family.samples
                ),
            )
            for family in self.registry.collect()
        ]


class InflightGuard:
    """The metrics of one request. It counts as an error unless it is marked ok.

    Once `serving` has named the model it is in flight. Closing is idempotent.
    """

    def __init__(self, metrics: Metrics, endpoint: str) -> None:
        self._metrics = metrics
        self._endpoint = endpoint
        self._request_type = "unary"
        self._model: str | None = None
        self._start = time.perf_counter()
        self._last: dict[int, tuple[float, int]] = {}  # choice -> (when, output tokens)
        self._status, self._error = "error", "cancelled"
        self._open = True
        self._leave: Callable[[], None] | None = None

    def on_close(self, leave: Callable[[], None]) -> None:
        """Calls `leave` when it is closed."""
        self._leave = leave

    def serving(self, model: str, *, stream: bool) -> None:
        self._model = self._metrics.model_label(model)
        self._request_type = "stream" if stream else "unary"
        self._inflight = self._metrics.inflight.labels(*self._labels())
        self._inflight.inc()
        self._of_model = self._metrics.of_model(self._model)

    def produced(self, choice: int, output_tokens: int) -> None:
        """Called with each delta: `output_tokens` of that choice so far."""
        now = time.perf_counter()
        last, before = self._last.get(choice, (self._start, 0))
        if output_tokens <= before:
            return
        self._last[choice] = now, output_tokens
        if len(self._last) == 1 and not before:
            self._of_model.first_token.observe(now - self._start)
        elif before:
            gap = (now - last) / (output_tokens - before)
            self._of_model.between_tokens.observe(gap)

    def used(self, prompt_tokens: int, output_tokens: int, cached_tokens: int) -> None:
        """Counts a generated answer at its end; requests for the tokenizer alone have no usage.

        A prompt that was refused, or left before its first token, is none of those served.
        """
        metrics = self._of_model
        metrics.duration.observe(time.perf_counter() - self._start)
        if self._status == "error" and not output_tokens:
            return
        metrics.prompt_size.observe(prompt_tokens)
        metrics.output_size.observe(output_tokens)
        metrics.prompt_tokens.inc(prompt_tokens)
        metrics.output_tokens.inc(output_tokens)
        metrics.cached_tokens.inc(cached_tokens)

    def mark_ok(self) -> None:
        self._status, self._error = "success", ""

    def mark_error(self, failure: BaseException) -> None:
        if isinstance(failure, Refused):
            self._error = failure.error.kind.value
        elif isinstance(failure, Exception) and not isinstance(failure, ClientDisconnect):
            self._error = "internal"

    @contextmanager
    def until_answered(self) -> Iterator[None]:
        """Closes the guard if the block fails, and leaves it open for the answer otherwise."""
        try:
            yield
        except BaseException as failure:
            self.mark_error(failure)
            self.close()
            raise

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if failure is not None and self._status == "error":
            self.mark_error(failure)
        self.close()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._leave is not None:
            self._leave()
        self._metrics.requests.labels(*self._labels(), self._status, self._error).inc()
        if self._model is not None:
            self._inflight.dec()

    def _labels(self) -> tuple[str, str, str]:
        return self._model or NO_MODEL, self._endpoint, self._request_type
