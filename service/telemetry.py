"""OpenTelemetry, where it is installed: a span for each request and each job.

With the API alone nothing is recorded; an SDK and an exporter are set up by the usual means
(`opentelemetry-instrument tilewright serve`, `OTEL_*`), which reach the worker's process too. What
a request and the job it asked for have in common is the job's id, an attribute of both: a job may
have several requests and outlives all of them.
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
    """A span around the block, with attributes named `tilewright.*`; None where nobody records.

    It belongs to the span the block is in, else to that of the `caller`: headers in lower case
    (`traceparent`), as W3C Trace Context has them.
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
    """What `caller` says of its trace; None for the context of this moment."""
    if not caller or import_module("opentelemetry.trace").get_current_span().is_recording():
        return None
    return import_module("opentelemetry.propagate").extract(caller)
