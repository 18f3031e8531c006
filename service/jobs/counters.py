"""Counts of a worker's trials, jobs, waits and errors, for the process that serves `/metrics`."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any


class Counters:
    """Counts since the last `take`. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._trials: Counter[str] = Counter()
        self._jobs: list[tuple[str, float, float]] = []
        self._machine_wait_secs = 0.0
        self._waits_since: dict[str, float] = {}
        self._store_errors = 0

    def trial(self, status: str) -> None:
        with self._lock:
            self._trials[status] += 1

    def job(self, state: str, secs: float, run_secs: float) -> None:
        """Count an ended job. `secs` is the time since its submission, `run_secs` since its
        lease."""
        with self._lock:
            self._jobs.append((state, secs, run_secs))

    def machine_wait(self, job_id: str, *, waits: bool) -> None:
        """Record that a job begins or stops waiting for the machine while another process uses
        it."""
        with self._lock:
            self._count_waits()
            if waits:
                self._waits_since.setdefault(job_id, self._clock())
            else:
                self._waits_since.pop(job_id, None)

    def store_error(self) -> None:
        with self._lock:
            self._store_errors += 1

    def take(self) -> dict[str, Any]:
        """Return the counts as JSON data, and reset them."""
        with self._lock:
            self._count_waits()
            counts = {
                "trials": dict(self._trials),
                "jobs": self._jobs,
                "store_errors": self._store_errors,
                "machine_wait_secs": self._machine_wait_secs,
            }
            self._trials, self._jobs = Counter(), []
            self._store_errors, self._machine_wait_secs = 0, 0.0
            return counts

    def _count_waits(self) -> None:
        """Add the waiting time since the previous call. The caller holds the lock."""
        now = self._clock()
        for job_id, since in self._waits_since.items():
            self._machine_wait_secs += now - since
            self._waits_since[job_id] = now
