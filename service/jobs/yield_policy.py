"""Answers first: who asked waits for a preparation now, and for the job that tunes it later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.schedules.errors import TilewrightError
from tilewright.service import timeouts


@dataclass(slots=True)
class YieldPolicy:
    """Whether ticket jobs let preparations go first now. Threads may share it."""

    most_secs: float = timeouts.YIELD_MAX_SECS
    look_secs: float = timeouts.PREPARATION_COUNT_SECS
    clock: Callable[[], float] = time.monotonic
    _since: float | None = None
    _looked: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, waiting: Callable[[], int]) -> bool:
        """Whether `waiting`, which counts the preparations that are not finished, finds some, and
        has not found some for too long. It is asked a few times a second at most."""
        with self._lock:
            now = self.clock()
            if now - self._looked > self.most_secs:
                self._since = None  # nobody has looked: what was then says nothing
            if now - self._looked >= self.look_secs:
                self._looked = now
                if not _some(waiting):
                    self._since = None
                elif self._since is None:
                    self._since = now
            return self._since is not None and now - self._since < self.most_secs


def _some(waiting: Callable[[], int]) -> bool:
    """A database that cannot be asked holds nobody up: whoever writes to it will tell."""
    try:
        return waiting() > 0
    except TilewrightError:
        return False
