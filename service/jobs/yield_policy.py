"""Preparations have priority over the jobs that tune the same workloads, because clients wait for
preparations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.schedules.errors import TilewrightError
from tilewright.service import timeouts


@dataclass(slots=True)
class YieldPolicy:
    """Decides whether ticket jobs yield to preparations now. Thread-safe."""

    most_secs: float = timeouts.YIELD_MAX_SECS
    look_secs: float = timeouts.PREPARATION_COUNT_SECS
    clock: Callable[[], float] = time.monotonic
    _since: float | None = None
    _looked: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, waiting: Callable[[], int]) -> bool:
        """Return whether to yield: preparations wait, and have not waited for more than
        `most_secs`. `waiting` returns their number; it is called a few times per second at most."""
        with self._lock:
            now = self.clock()
            if now - self._looked > self.most_secs:
                self._since = None  # no call for a while: the start of the period is outdated
            if now - self._looked >= self.look_secs:
                self._looked = now
                if not _some(waiting):
                    self._since = None
                elif self._since is None:
                    self._since = now
            return self._since is not None and now - self._since < self.most_secs


def _some(waiting: Callable[[], int]) -> bool:
    """Return whether any preparation waits. Return False if the database cannot be used, so that no
    job is delayed."""
    try:
        return waiting() > 0
    except TilewrightError:
        return False
