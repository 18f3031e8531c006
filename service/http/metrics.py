"""Prometheus metrics, one registry per application."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tilewright.db.errors import StoreError
from tilewright.service.jobs.heartbeat import Role
from tilewright.service.jobs.queue import open_jobs
from tilewright.service.resolve import toolchains

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.service.jobs.supervisor import WorkerHealth


Oldest = Mapping[str, tuple[str, datetime]]
"""For each state, the id of the job that is oldest, and when it was submitted."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class JobAges:
    """Ages of jobs. The first age of a job is from the wall clock; then a monotonic clock continues
    it, so that setting the wall clock does not change a known age."""

    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = _utc_now
    _since: dict[str, float] = field(default_factory=dict)

    def of(self, oldest: Oldest) -> dict[str, float]:
        """Return the age in seconds for each state of `oldest`. Other jobs are forgotten."""
        moment = self.clock()
        self._since = {
            name: self._since.get(name, moment - max((self.now() - came).total_seconds(), 0.0))
            for name, came in oldest.values()
        }
        return {state: moment - self._since[name] for state, (name, _) in oldest.items()}


JOB_SECS_BUCKETS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
WAIT_SECS_BUCKETS = (0.1, 0.5, 1, 5, 10, 30, 60)


class Metrics:
    """The metrics of one application; `docs/operations.md` lists them. Metrics of the database are
    read on each scrape, and omitted if the database cannot be read. Durations are measured with
    monotonic clocks."""

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
            "Time to the first byte of the response, without intentional waiting, in seconds.",
            ["method", "route"],
            registry=registry,
        )
        self._waits = Histogram(
            "tilewright_http_wait_seconds",
            "Time that requests waited intentionally, for a job or an answer, in seconds.",
            ["route"],
            buckets=WAIT_SECS_BUCKETS,
            registry=registry,
        )
        self._answers = Counter(
            "tilewright_answers",
            "Answers to requests for the best schedule, by grade; `none` if there is no answer.",
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
            "Time from the submission to the end of a job of this process's worker, in seconds.",
            ["state"],
            buckets=JOB_SECS_BUCKETS,
            registry=registry,
        )
        self._job_run_seconds = Histogram(
            "tilewright_job_run_seconds",
            "Time from the lease of a job by this process's worker to its end, in seconds.",
            ["state"],
            buckets=JOB_SECS_BUCKETS,
            registry=registry,
        )
        self._machine_wait = Counter(
            "tilewright_machine_wait_seconds",
            "Time that jobs waited for the machine while another process used it, in seconds.",
            registry=registry,
        )
        self._store_errors = Counter(
            "tilewright_store_errors",
            "Failed uses of the database, by requests or by the worker.",
            registry=registry,
        )
        self._worker_up = Gauge(
            "tilewright_worker_up",
            "1 while this process's worker is ready, as leader or standby.",
            registry=registry,
        )
        self._worker_deaths = Gauge(
            "tilewright_worker_deaths",
            "Deaths of this process's worker within the last minute.",
            registry=registry,
        )
        self._role = Gauge(
            "tilewright_role",
            "1 for the role of this process; the leader of a database runs its jobs.",
            ["role"],
            registry=registry,
        )
        self._build = Gauge(
            "tilewright_build_info",
            "1, with the versions of this process as labels.",
            ["version", "llvm", "llvmlite", "codegen", "python"],
            registry=registry,
        )
        self._of_store = of_store = CollectorRegistry()
        self._records = Gauge("tilewright_records", "Records stored.", registry=of_store)
        self._jobs = Gauge(
            "tilewright_open_jobs", "Unfinished jobs, by state.", ["state"], registry=of_store
        )
        self._queue = Gauge("tilewright_queue_length", "Waiting jobs.", registry=of_store)
        self._oldest = Gauge(
            "tilewright_oldest_job_seconds",
            "Time since the submission of the oldest job in a state, in seconds; 0 without a job.",
            ["state"],
            registry=of_store,
        )
        self._preparations = Gauge(
            "tilewright_preparations",
            "Preparations of answers for workloads that were never tuned, by state.",
            ["state"],
            registry=of_store,
        )
        self._used = Gauge(
            "tilewright_database_bytes", "Size of the database in bytes.", registry=of_store
        )
        self._limit = Gauge(
            "tilewright_database_limit_bytes",
            "Size in bytes from which the database accepts no new data; 0 for no limit.",
            registry=of_store,
        )
        self._ages = JobAges()
        self._looking = threading.Lock()

    def request(self, method: str, route: str, status: int, secs: float) -> None:
        """Count a response; `secs` does not include intentional waiting."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(secs)

    def waited(self, route: str, secs: float) -> None:
        """Count the intentional waiting of a request."""
        self._waits.labels(route).observe(secs)

    def answer(self, grade: str) -> None:
        self._answers.labels(grade).inc()

    def store_error(self) -> None:
        self._store_errors.inc()

    def worker_counts(self, counts: dict[str, Any]) -> None:
        """Add the counts of a worker (`Counters.take`). Thread-safe."""
        for status, count in counts["trials"].items():
            self._trials.labels(status).inc(count)
        for state, secs, run_secs in counts["jobs"]:
            self._job_seconds.labels(state).observe(secs)
            self._job_run_seconds.labels(state).observe(run_secs)
        self._machine_wait.inc(counts["machine_wait_secs"])
        self._store_errors.inc(counts["store_errors"])

    def look_at(self, store: Store, limit_bytes: int) -> bool:
        """Read the counts of the database. Return False if it cannot be read."""
        try:
            records, found = store.counts().records, open_jobs(store)
            oldest, prepared = store.oldest_jobs(), store.preparation_counts()
            used_bytes = store.used_bytes()
        except StoreError:
            self.store_error()
            return False
        self._records.set(records)
        with self._looking:
            ages = self._ages.of({str(state): one for state, one in oldest.items()})
        for state, count in found.items():
            self._jobs.labels(state).set(count)
            self._oldest.labels(state).set(ages.get(state, 0.0))
        self._queue.set(found["QUEUED"])
        for one, count in prepared.items():
            self._preparations.labels(str(one)).set(count)
        self._used.set(used_bytes)
        self._limit.set(limit_bytes)
        return True

    def exposition(self, worker: WorkerHealth | None, *, version: str, with_store: bool) -> bytes:
        """Return the metrics in Prometheus's text format. `with_store` includes the values that
        `look_at` has just read. Without a worker, its gauges are omitted."""
        role = Role.REPLICA if worker is None else worker.role
        for one in Role:
            self._role.labels(str(one)).set(one is role)
        if worker is not None:
            self._worker_up.set(worker.ready)
            self._worker_deaths.set(worker.deaths)
        made_by = toolchains.toolchain()
        self._build.labels(
            version=version,
            llvm=toolchains.llvm_version(),
            llvmlite=made_by.llvmlite,
            codegen=str(made_by.codegen_version),
            python=platform.python_version(),
        ).set(1)
        mine = generate_latest(self._registry)
        return mine + generate_latest(self._of_store) if with_store else mine
