"""Counters for Prometheus, one registry an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from db.errors import StoreError
from service.jobs.counts import open_jobs

if TYPE_CHECKING:
    from db import Store
    from service.jobs.supervisor import WorkerHealth

JOB_SECS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)


class Metrics:
    """`tilewright_http_*` by method, route and status; what the worker of this process did; what
    the store holds, read at scrape and left out where it cannot be. `docs/operations.md` lists
    them."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "tilewright_http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "tilewright_http_request_seconds",
            "Time to the first byte of the answer, in seconds.",
            ["method", "route"],
            registry=registry,
        )
        self._answers = Counter(
            "tilewright_answers",
            "Answers to questions for the best schedule, by grade; `none` for a miss.",
            ["grade"],
            registry=registry,
        )
        self._trials = Counter(
            "tilewright_trials",
            "Trials measured by the worker of this process, by status.",
            ["status"],
            registry=registry,
        )
        self._job_seconds = Histogram(
            "tilewright_job_seconds",
            "From submission to the end of a job of this process's worker, in seconds.",
            ["state"],
            buckets=JOB_SECS,
            registry=registry,
        )
        self._store_errors = Counter(
            "tilewright_store_errors",
            "Times the database could not be used, in requests or by the worker.",
            registry=registry,
        )
        self._of_store = of_store = CollectorRegistry()
        self._records = Gauge("tilewright_records", "Records stored.", registry=of_store)
        self._jobs = Gauge(
            "tilewright_open_jobs", "Jobs not finished, by state.", ["state"], registry=of_store
        )
        self._queue = Gauge("tilewright_queue_length", "Jobs that wait.", registry=of_store)
        self._worker_up = Gauge(
            "tilewright_worker_up", "1 while this process's worker is at work.", registry=registry
        )
        self._worker_deaths = Gauge(
            "tilewright_worker_deaths",
            "Deaths of this process's worker within the last minute.",
            registry=registry,
        )

    def request(self, method: str, route: str, status: int, secs: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(secs)

    def answer(self, grade: str) -> None:
        self._answers.labels(grade).inc()

    def store_error(self) -> None:
        self._store_errors.inc()

    def worker_counts(self, counts: dict[str, Any]) -> None:
        """Add what a worker counted (`tally.Tally.take`). Safe to call from any thread."""
        for status, count in counts["trials"].items():
            self._trials.labels(status).inc(count)
        for state, secs in counts["jobs"]:
            self._job_seconds.labels(state).observe(secs)
        self._store_errors.inc(counts["store_errors"])

    def look_at(self, store: Store) -> bool:
        """Take the store's counts of this moment; False where it cannot be read."""
        try:
            self._records.set(store.counts().records)
            found = open_jobs(store)
        except StoreError:
            self.store_error()
            return False
        for state, count in found.items():
            self._jobs.labels(state).set(count)
        self._queue.set(found["QUEUED"])
        return True

    def exposition(self, worker: WorkerHealth | None, *, with_store: bool) -> bytes:
        """The text format; `with_store` with what `look_at` took, which is of no use once old."""
        if worker is not None:
            self._worker_up.set(worker.ready)
            self._worker_deaths.set(worker.deaths)
        mine = generate_latest(self._registry)
        return mine + generate_latest(self._of_store) if with_store else mine
