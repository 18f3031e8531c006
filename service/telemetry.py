"""OpenTelemetry, if it is installed: a span for each request and each job.

With only the API installed, nothing is recorded. An SDK and an exporter are configured in the usual
ways (`opentelemetry-instrument tilewright serve`, `OTEL_*`), which also reach the worker's process.
The spans of a request and of its job have the job's id as an attribute, and are not nested: a job
may have several requests and outlives them.
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
    """A span around the block, with attributes named `tilewright.*`, or None if nothing is
    recorded.

    Its parent is the current span, else that of the `caller`: W3C Trace Context headers in lower
    case (`traceparent`).
    """
    tracer = _tracer()
    if tracer is None:
        yield None
        return
    with tracer.start_as_current_span(f"tilewright.{name}", context=_context_of(caller)) as current:
        for key, value in attributes.items():
            current.set_attribute(f"tilewright.{key}", value)
        yield current


def _context_of(caller: Mapping[str, str] | None) -> Any:
    """Return the trace context in the headers of `caller`, or None for the current one."""
    if not caller or import_module("opentelemetry.trace").get_current_span().is_recording():
        return None
    return import_module("opentelemetry.propagate").extract(caller)
