"""The coordinator: a process that leases jobs from the database and runs them, one at a time.

    python -m service.jobs.worker        (its settings come in TILEWRIGHT_WORKER, as JSON)

Everything a job did is in the database when it is told, so this process may die at any moment:
its lease runs out, and whoever leases the job next continues it from its records.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schedules.errors import TilewrightError
from service.answers.publish import Publish, publish, result_document
from service.errors import problem_of
from service.jobs.request import JobRequest, stored_job
from service.jobs.tuning import run_tuning

if TYPE_CHECKING:
    from db import Store
    from db.jobs import Job
    from tuner.report import TuneReport

log = logging.getLogger("tilewright.worker")

ENVIRONMENT = "TILEWRIGHT_WORKER"
PROGRESS_SECS = 0.25


class _Draining(BaseException):
    """The worker was told to stop; the job goes back to the queue. It ends a run from within
    `on_event`: nothing between there and the worker may catch it."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is told. `db_url` "" means the user's own database."""

    db_url: str
    lease_secs: float = 5.0
    poll_secs: float = 0.5
    coordinate: bool = True
    json_log: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """Leases and runs jobs on `store` until `stop` is set.

    `run` and `publish` are the real ones; tests give others.
    """

    store: Store
    settings: WorkerSettings
    owner: str
    stop: threading.Event
    run: Callable[..., TuneReport] = run_tuning
    publish: Publish = publish
    clock: Callable[[], float] = time.monotonic

    def work(self) -> None:
        """Run jobs as they come, until told to stop."""
        while not self.stop.is_set():
            if not self.work_once():
                self.stop.wait(self.settings.poll_secs)

    def work_once(self) -> bool:
        """Run one job if there is one; whether there was."""
        job = self.store.lease_job(self.owner, self.settings.lease_secs)
        if job is None:
            return False
        log.info("job %s: started (lease %d)", job.id, job.epoch)
        _JobRun(self, job).to_its_end()
        return True


class _JobRun:
    """One lease of one job: its heartbeat, its events, its end."""

    def __init__(self, worker: Worker, job: Job) -> None:
        self._worker = worker
        self._store = worker.store
        self._job = job
        self._over = threading.Event()
        self._cancelled = threading.Event()
        self._lost = threading.Event()
        self._started = worker.clock()
        self._told = -PROGRESS_SECS
        self._failed = self._reused = 0
        self._unlinked: list[tuple[int, str]] = []

    def to_its_end(self) -> None:
        from db.errors import StaleLease

        heartbeat = threading.Thread(target=self._keep_lease, daemon=True)
        heartbeat.start()
        try:
            self._run()
        except StaleLease:
            log.warning("job %s: another worker has it now", self._job.id)
        finally:
            self._over.set()
            heartbeat.join()

    def _run(self) -> None:
        from db.job_states import JobState

        try:
            request = stored_job(self._job.request)
            report = self._worker.run(
                self._store,
                request.workload,
                request.target,
                request.options,
                self._on_event,
                self._cancelled.is_set,
            )
        except _Draining:
            if not self._lost.is_set():
                self._store.release_job(self._job.id, self._job.epoch)
                log.info("job %s: given back", self._job.id)
        except TilewrightError as error:
            if type(error).__module__ == "db.errors":
                raise
            self._end(JobState.FAILED, error=problem_of(error).to_json())
        else:
            self._conclude(request, report)

    def _conclude(self, request: JobRequest, report: TuneReport) -> None:
        from db.job_states import JobState

        document = result_document(
            self._store, request.workload, request.target, report, self._worker.publish
        )
        self._link()
        self._tell_progress(
            {
                "trials": request.options.trials,
                "trials_done": report.trials["total"],
                "reused": self._reused,
                "failed": report.trials["total"] - report.trials["ok"],
                "best_run_secs": report.best.run_secs if report.best else None,
                "fraction_of_bound": report.best.fraction_of_bound if report.best else None,
                "wall_secs": report.wall_secs,
                "eta_secs": 0.0,
            }
        )
        if self._cancelled.is_set():
            self._end(JobState.CANCELLED, result=document)
            return
        if report.best is None:
            detail = "no candidate passed: " + (
                ", ".join(f"{n} {s}" for s, n in report.trials["by_status"].items() if n) or "none"
            )
            error = {"code": "no_candidate_passed", "detail": detail}
            self._end(JobState.FAILED, result=document, error=error)
            return
        if document["warning"]:
            log.warning("job %s: %s", self._job.id, document["warning"])
        self._end(JobState.SUCCEEDED, result=document)

    def _end(
        self,
        state: Any,
        *,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        job = self._store.finish_job(
            self._job.id, self._job.epoch, state, result=result, error=error
        )
        log.info("job %s: %s", job.id, job.state)

    def _on_event(self, event: dict[str, Any]) -> None:
        """Note a trial that is stored, then look whether to go on.

        Trials of an earlier run, or of this job before its worker died, come in numbers and are
        no news: they are linked and counted together, without events.
        """
        self._unlinked.append((event["trial"], event["record_key"]))
        self._failed += event["result"]["status"] != "ok"
        if event["reused"]:
            self._reused += 1
        else:
            self._link()
            self._tell(event)
        if self._worker.stop.is_set() or self._lost.is_set():
            raise _Draining

    def _tell(self, event: dict[str, Any]) -> None:
        """A trial measured now, for whoever follows the job."""
        short = {
            **event,
            "result": {
                name: event["result"][name] for name in ("status", "run_secs_estimate", "detail")
            },
        }
        self._store.append_event(self._job.id, self._job.epoch, "trial", short)
        now = self._worker.clock()
        if event["is_best"] or now - self._told >= PROGRESS_SECS:
            self._told = now
            self._tell_progress(
                {
                    "trials": event["of_trials"],
                    "trials_done": event["trial"],
                    "reused": self._reused,
                    "failed": self._failed,
                    "best_run_secs": event["best_run_secs"],
                    "fraction_of_bound": event["fraction_of_bound"],
                    "wall_secs": event["wall_secs"],
                    "eta_secs": event["eta_secs"],
                }
            )

    def _tell_progress(self, progress: dict[str, Any]) -> None:
        self._store.update_progress(self._job.id, self._job.epoch, progress)

    def _link(self) -> None:
        """List the trials told since the last time."""
        if self._unlinked:
            self._store.link_trials(self._job.id, self._job.epoch, self._unlinked)
            self._unlinked = []

    def _keep_lease(self) -> None:
        """Renew the lease in time, and look for a request to cancel four times a second."""
        from db.errors import StaleLease, StoreError

        settings = self._worker.settings
        renewed = self._worker.clock()
        while not self._over.wait(min(settings.lease_secs / 4, 0.25)):
            try:
                if self._store.is_cancel_requested(self._job.id):
                    self._cancelled.set()
                if self._worker.clock() - renewed >= settings.lease_secs / 3:
                    self._store.renew_lease(self._job.id, self._job.epoch, settings.lease_secs)
                    renewed = self._worker.clock()
            except StaleLease:
                self._lost.set()
                return
            except StoreError as error:
                log.warning("job %s: heartbeat missed: %s", self._job.id, error)


def main() -> int:
    """Run a worker until SIGTERM or until the process that started it is gone."""
    from db import open_store
    from service.logs import configure

    settings = WorkerSettings(**json.loads(os.environ[ENVIRONMENT]))
    configure(as_json=settings.json_log)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_watch_parent, args=(os.getppid(), stop), daemon=True).start()
    try:
        with open_store(settings.db_url or None) as store:
            if settings.coordinate:
                store.coordinate()
            Worker(store, settings, f"{socket.gethostname()}:{os.getpid()}", stop).work()
    except TilewrightError as error:
        problem = problem_of(error)
        sys.stderr.write(f"tilewright worker: {problem.detail}\n")
        return problem.exit_code
    return 0


def _watch_parent(parent: int, stop: threading.Event) -> None:
    """Drain when the supervisor is gone, so that no worker is left behind."""
    while os.getppid() == parent:
        time.sleep(1.0)
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
