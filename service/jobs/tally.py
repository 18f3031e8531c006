"""What a worker did, counted for the process that serves `/metrics`."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any


class Tally:
    """Counts since `take` was called last. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trials: Counter[str] = Counter()
        self._jobs: list[tuple[str, float]] = []
        self._store_errors = 0

    def trial(self, status: str) -> None:
        """A trial was measured."""
        with self._lock:
            self._trials[status] += 1

    def job(self, state: str, secs: float) -> None:
        """A job ended, so many seconds after it was submitted."""
        with self._lock:
            self._jobs.append((state, secs))

    def store_error(self) -> None:
        """The database could not be used."""
        with self._lock:
            self._store_errors += 1

    def take(self) -> dict[str, Any]:
        """The counts as JSON data; they begin anew."""
        with self._lock:
            counts = {
                "trials": dict(self._trials),
                "jobs": self._jobs,
                "store_errors": self._store_errors,
            }
            self._trials, self._jobs, self._store_errors = Counter(), [], 0
            return counts
