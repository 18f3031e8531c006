"""OpenTelemetry, where it is installed: a span for each request and each job.

With the API alone nothing is recorded. An SDK and an exporter are configured in the usual ways
(`opentelemetry-instrument tilewright serve`, `OTEL_*`), which reach the worker's process too. The
spans of a request and of its job share the job's id as an attribute, and are not nested: a job may
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
    """The tracer, None where OpenTelemetry is not installed."""
    try:
        trace = import_module("opentelemetry.trace")
    except ImportError:
        return None
    return trace.get_tracer("tilewright")


@contextmanager
def span(
    name: str, caller: Mapping[str, str] | None = None, **attributes: str | int | float
) -> Iterator[Any]:
    """A span around the block, with attributes named `tilewright.*`; None where nothing is
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
    """The trace context in the headers of `caller`; None for the current one."""
    if not caller or import_module("opentelemetry.trace").get_current_span().is_recording():
        return None
    return import_module("opentelemetry.propagate").extract(caller)
