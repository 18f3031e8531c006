"""OpenTelemetry, where it is installed: a span for each request and each job.

With the API alone nothing is recorded; an SDK and an exporter are set up by the usual means
(`opentelemetry-instrument tilewright serve`, `OTEL_*`).
"""

from __future__ import annotations

from collections.abc import Iterator
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
def span(name: str, **attributes: str | int | float) -> Iterator[Any]:
    """A span around the block, with attributes named `tilewright.*`; None where nobody records."""
    tracer = _tracer()
    if tracer is None:
        yield None
        return
    with tracer.start_as_current_span(f"tilewright.{name}") as current:
        for key, value in attributes.items():
            current.set_attribute(f"tilewright.{key}", value)
        yield current
