"""Parts of a request as OpenTelemetry spans, among those that Ray Serve makes when it traces.

Serve's own span of the surrounding call says which request it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[None]:
    """Costs microseconds while nothing traces."""
    from ray import serve  # not at the top: protocols are imported without Ray

    tracer = trace.get_tracer("manta")
    context = serve.get_trace_context()
    with tracer.start_as_current_span(f"manta.{name}", context=context, attributes=attributes):
        yield
