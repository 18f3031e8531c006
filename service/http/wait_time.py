"""How long a request waited on purpose: for a job to end, for an answer to be prepared.

Such time is the asker's wish and says nothing of how fast the service is, so it stands apart from
latencies, in metrics and in the log.
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
    """Seconds of one request; None where it did not ask for waiting."""

    secs: float | None = None

    @contextmanager
    def on_purpose(self) -> Iterator[None]:
        """What the block takes is waiting."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.secs = (self.secs or 0.0) + time.monotonic() - start


def wait_time_of(scope: Scope) -> WaitTime:
    """That of a request, the same for all who ask."""
    found: WaitTime = scope.setdefault("state", {}).setdefault(_NAME, WaitTime())
    return found
