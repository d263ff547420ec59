"""Parts of a request as OpenTelemetry spans, among those that Ray Serve makes when it traces.

Serve's own span of the surrounding call says which request it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context


def is_traced() -> bool:
    """Whether the running request is sampled."""
    context = _context()
    if context is None:
        return False
    return trace.get_current_span(context).get_span_context().trace_flags.sampled


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[None]:
    """Costs next to nothing while tracing is off."""
    context = _context()
    if context is None:
        yield
        return
    tracer = trace.get_tracer("manta")
    with tracer.start_as_current_span(f"manta.{name}", context=context, attributes=attributes):
        yield


def _context() -> Context | None:
    """None while tracing is off."""
    from ray import serve  # not at the top: protocols are imported without Ray

    context: Context | None = serve.get_trace_context()
    return context
