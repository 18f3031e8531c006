"""Time that a request waits intentionally, for a job to end or an answer to be prepared.

The caller requests this time. It does not depend on the speed of the service, so metrics and the
log report it separately from latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Scope

_NAME = "waited_for"


@dataclass(slots=True)
class WaitTime:
    """The intentional waiting of one request in seconds, or None if it has not waited."""

    secs: float | None = None
    clock: Callable[[], float] = time.perf_counter

    @contextmanager
    def on_purpose(self) -> Iterator[None]:
        """Count the duration of the block as waiting."""
        start = self.clock()
        try:
            yield
        finally:
            self.secs = (self.secs or 0.0) + self.clock() - start


def wait_time_of(scope: Scope, clock: Callable[[], float] = time.perf_counter) -> WaitTime:
    """Return the wait time of a request; all users share one object, with the first one's clock."""
    found: WaitTime = scope.setdefault("state", {}).setdefault(_NAME, WaitTime(clock=clock))
    return found
