"""Time that a request waits intentionally: for a job to end, for an answer to be prepared.

The caller asks for this time and it says nothing about the speed of the service, so metrics and the
log report it separately from latency.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Scope

_NAME = "waited_for"


@dataclass(slots=True)
class WaitTime:
    """Seconds of one request; None if it did not ask to wait."""

    secs: float | None = None

    @contextmanager
    def on_purpose(self) -> Iterator[None]:
        """Count the duration of the block as waiting."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.secs = (self.secs or 0.0) + time.monotonic() - start


def wait_time_of(scope: Scope) -> WaitTime:
    """The wait time of a request, one value for all users."""
    found: WaitTime = scope.setdefault("state", {}).setdefault(_NAME, WaitTime())
    return found
