"""OpenTelemetry, if it is installed: a span for each request and each job.

An SDK and an exporter are configured as usual (`opentelemetry-instrument tilewright serve`,
`OTEL_*`), also for the worker's process. Without an SDK, nothing is recorded. The spans of a
request and of its job have the job's id as an attribute. They are not nested, because a job may
have several requests and outlives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any


@cache
def _tracer() -> Any:
    """Return the tracer, or None if OpenTelemetry is not installed."""
    try:
        trace = import_module("opentelemetry.trace")
    except ImportError:
        return None
    return trace.get_tracer("tilewright")


@contextmanager
def span(
    name: str, caller: Mapping[str, str] | None = None, **attributes: str | int | float
) -> Iterator[Any]:
    """Yield a span around the block, with attributes named `tilewright.*`, or None if OpenTelemetry
    is not installed. Its parent is the current span, or else the span in `caller`: W3C Trace
    Context headers in lower case (`traceparent`)."""
    tracer = _tracer()
    if tracer is None:
        yield None
        return
    with tracer.start_as_current_span(f"tilewright.{name}", context=_context_of(caller)) as current:
        for key, value in attributes.items():
            current.set_attribute(f"tilewright.{key}", value)
        yield current


def _context_of(caller: Mapping[str, str] | None) -> Any:
    if not caller or import_module("opentelemetry.trace").get_current_span().is_recording():
        return None
    return import_module("opentelemetry.propagate").extract(caller)
