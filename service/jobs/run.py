"""One lease of one job: its turns on the machine, its heartbeat, its end.

Nothing that happens to a job reaches its neighbours: what is wrong with the request ends it as
FAILED, so does a bug of ours, with its traceback in the log; a database that cannot be written is
waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tilewright.db.errors import StaleLease, StoreError
from tilewright.db.values.job_states import LOST_TOO_OFTEN, MAX_FAILURES, JobState
from tilewright.db.values.jobs import TICKET_PRIORITY, StoredJob
from tilewright.schedules.errors import TilewrightError
from tilewright.service import logs, telemetry, timeouts
from tilewright.service.answers.failed_checks import every_failed, rejected_words
from tilewright.service.answers.publish import Publish, Published, publish
from tilewright.service.jobs.counters import Counters
from tilewright.service.jobs.journal import Journal
from tilewright.service.jobs.request import JobRequest, stored_job
from tilewright.service.jobs.time_slices import TimeSlices
from tilewright.service.jobs.tuning import TuneOptions, tune_into, whole_document
from tilewright.service.jobs.yield_policy import YieldPolicy
from tilewright.service.problems import problem_of
from tilewright.service.resolve import toolchains
from tilewright.tuner.process.control import Activity, Control, MeasurementAborted, OutOfTime
from tilewright.tuner.session.report import TuneReport

if TYPE_CHECKING:
    from tilewright.db import Store

log = logging.getLogger("tilewright.worker")


_LONG = frozenset({"starting", "reference", "full check"})
_TOLD_BY_TRIALS = frozenset({"proposing", "compiling", "measuring"})
"""Phases that come again with every batch: they are progress, but no events."""


MOST_LISTED = 1_000_000


class _Draining(BaseException):
    """The worker was told to stop; the job goes back to the queue. It ends a run from within
    `on_event`: nothing between there and the worker may catch it."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """What every job of a worker is run with. `run` and `publish` are the real ones; tests give
    others. `stop` tells all of them to end."""

    store: Store
    lease_secs: float
    stop: threading.Event
    turns: TimeSlices = field(default_factory=TimeSlices)
    tally: Counters = field(default_factory=Counters)
    run: Callable[..., TuneReport] = tune_into
    publish: Publish = publish
    clock: Callable[[], float] = time.monotonic
    fleet: str = ""
    courtesy: YieldPolicy = field(default_factory=YieldPolicy)

    def answers_first(self) -> bool:
        """Whether the jobs of tickets wait, for answers that are being prepared."""
        name = toolchains.toolchain_name(toolchains.toolchain())
        return self.courtesy.is_due(lambda: self.store.preparations_waiting(name))


class JobRun:
    """Runs `job`, which is leased to this worker, to whatever end it has."""

    def __init__(self, means: JobContext, job: StoredJob, owner: str = "") -> None:
        self._means = means
        self._store = means.store
        self._job = job
        self._owner = owner
        # A fleet has machines of its own: its jobs take turns with nobody here.
        mine = not str(job.request.get("measurer", "")).startswith("dask")
        self._turns = means.turns if mine else TimeSlices()
        self._is_ticket = mine and job.priority <= TICKET_PRIORITY
        self._journal = Journal(means.store, job, means.clock)
        self._control = Control(
            self._waits_for,
            is_wanted=lambda: self._turns.is_over(job.id) or self._answers_first(),
            turn=self._turn,
            on_activity=self._on_activity,
            now=means.clock,
            started=means.clock() - _used_before(job),
        )
        self._span: Any = None
        self._phase = ""
        self._over = threading.Event()
        self._cancelled = threading.Event()
        self._lost = threading.Event()
        self._asked_to_end: float | None = None
        self._failed = self._reused = 0
        self._failures = job.failures
        self._works = False
        self._begun = means.clock()
        # The time of day has a part in no more than the wait for this worker.
        self._secs_before = max((datetime.now(UTC) - job.created_at).total_seconds(), 0.0)

    def to_its_end(self) -> None:
        """Run the job. Nothing is raised: what went wrong is in the job, or in the log."""
        with (
            logs.bound(job_id=self._job.id),
            telemetry.span("job", job_id=self._job.id) as self._span,
        ):
            # Its lines carry the job's id as well.
            heartbeat = threading.Thread(
                target=copy_context().run, args=(self._keep_lease,), daemon=True
            )
            heartbeat.start()
            log.info("job %s: started (lease %d)", self._job.id, self._job.epoch)
            try:
                self._try_until_told()
            except StaleLease:
                log.warning(
                    "job %s: another worker has it now", self._job.id, extra={"outcome": "lost"}
                )
            except Exception:  # its end cannot even be told; the others go on
                log.exception("job %s: a bug of ours, and the job cannot be ended", self._job.id)
            finally:
                self._means.tally.machine_wait(self._job.id, waits=False)
                self._over.set()
                heartbeat.join()

    def _try_until_told(self) -> None:
        """Run it, again and again while its database cannot be used: what was measured is known
        to the next try."""
        pause_secs = timeouts.STORE_RETRY_SECS
        while True:
            try:
                self._attempt()
                return
            except StoreError as error:
                self._means.tally.store_error()
                log.warning("job %s: %s; trying again in %g s", self._job.id, error, pause_secs)
            with self._control.paused():
                stopped = self._means.stop.wait(pause_secs)
            if stopped:
                return  # whoever starts next takes it up at once
            pause_secs = min(2 * pause_secs, timeouts.STORE_RETRY_MAX_SECS)

    def _attempt(self) -> None:
        try:
            with self._turns.among(self._job.id, self._owner):
                self._run()
        except (StoreError, StaleLease):
            raise
        except _Draining:
            self._give_back()
        except OutOfTime as error:
            self._end(JobState.FAILED, error=problem_of(error).to_json())
        except MeasurementAborted:
            if self._cancelled.is_set():
                self._end(JobState.CANCELLED)
            else:  # by the worker's own end
                self._give_back()
        except TilewrightError as error:
            self._end(JobState.FAILED, error=problem_of(error).to_json())
        except Exception as error:  # a bug in one job is that job's end alone
            log.exception("job %s: a bug of ours", self._job.id)
            self._end(JobState.FAILED, error=_bug(error))

    def _give_back(self) -> None:
        """To the queue, unless it is another's by now."""
        if self._lost.is_set():
            return
        self._journal.note(failures=self._failures)
        self._journal.flush()
        self._store.release_job(self._job.id, self._job.epoch)
        log.info("job %s: given back", self._job.id, extra={"outcome": "given_back"})

    def _run(self) -> None:
        self._failed = self._reused = 0
        self._works = False
        self._control.allow((self._job.request.get("budget") or {}).get("seconds"))
        with self._control.paused():
            self._let_answers_go_first()
            self._turns.wait(self._job.id, self._look)
        if self._job.failures >= MAX_FAILURES:
            self._give_up()
            return
        self._is_at_work()
        request = stored_job(self._job.request, self._means.fleet, self._control)
        report = self._tune(request, request.options)
        self._conclude(request, report)

    def _tune(self, request: JobRequest, options: TuneOptions) -> TuneReport:
        report = self._means.run(
            self._store,
            request.workload,
            request.target,
            options,
            self._on_event,
            self._cancelled.is_set,
            control=self._control,
            begun=self._store.begun_trials(self._job.id),
        )
        if self._control.aborted and not self._cancelled.is_set():
            raise _Draining
        return report

    def _give_up(self) -> None:
        """End the job as FAILED, with the best of the trials it has: they are all known, so what is
        done for it once more is only to check the best."""
        trials = len(self._store.job_trials(self._job.id, limit=MOST_LISTED))
        log.error("job %s: %s", self._job.id, LOST_TOO_OFTEN["detail"])
        if not trials:
            self._end(JobState.FAILED, error=LOST_TOO_OFTEN)
            return
        self._is_at_work()
        request = stored_job(self._job.request, self._means.fleet, self._control)
        known = replace(request.options.budget, trials=trials)
        report = self._tune(request, replace(request.options, budget=known))
        self._conclude(request, report, error=LOST_TOO_OFTEN)

    # -- turns

    def _turn(self) -> None:
        """Let the others work, if this job's turn is over."""
        if self._means.stop.is_set() or self._lost.is_set():
            raise _Draining
        self._let_answers_go_first()
        self._turns.next(self._job.id, self._look)
        self._waits_for("")

    def _answers_first(self) -> bool:
        return self._is_ticket and self._means.answers_first()

    def _let_answers_go_first(self) -> None:
        """The job of a ticket waits while answers are prepared: its own may be among them."""
        self._turns.aside(
            self._job.id,
            self._answers_first,
            lambda: self._look_while("answers that are prepared before it"),
        )

    def _look(self, before: int) -> None:
        """While it is the turn of others: whether to go on waiting."""
        others = "1 other job is" if before == 1 else f"{before} other jobs are"
        self._look_while(f"its turn: {others} before it")

    def _look_while(self, waits_for: str) -> None:
        """Whether to go on waiting. _Draining, MeasurementAborted: a job that was cancelled does
        not wait to have its best checked."""
        if self._means.stop.is_set() or self._lost.is_set():
            raise _Draining
        if self._cancelled.is_set():
            raise MeasurementAborted("stopped on request")
        self._waits_for(waits_for)

    def _waits_for(self, text: str) -> None:
        """Tell what the job waits for, "" if for nothing."""
        if self._lost.is_set():
            return
        for_machine = text.startswith("waiting for the machine")
        self._means.tally.machine_wait(self._job.id, waits=for_machine)
        if for_machine:
            log.warning("job %s: %s", self._job.id, text)
        if text:
            self._works = False
            self._journal.note(progress={"waiting_for": text}, failures=self._failures)
        elif not self._works:
            self._is_at_work()

    def _is_at_work(self) -> None:
        """From here on the end of this process counts against the job, unless it was ended from
        outside; so that is stored before anything is done for it."""
        self._journal.note(progress={"waiting_for": None}, failures=self._failures + 1)
        self._journal.flush()
        self._works = True

    # -- the end

    def _conclude(
        self, request: JobRequest, report: TuneReport, error: dict[str, Any] | None = None
    ) -> None:
        """End the job with what was found; as FAILED where there is an `error`."""
        self._control.doing(Activity("publishing", "building the files of the best"))
        document = whole_document(
            self._store,
            request.workload,
            request.target,
            report,
            self._control,
            self._publish_in_time,
        )
        self._journal.note(
            progress={
                "trials": request.options.budget.trials,
                "trials_done": report.trials["total"],
                "reused": self._reused,
                "failed": report.trials["total"] - report.trials["ok"],
                "best_run_secs": report.best.run_secs if report.best else None,
                "fraction_of_bound": report.best.fraction_of_bound if report.best else None,
                "wall_secs": document["wall_secs"],
                "eta_secs": 0.0,
                "waiting_for": None,
                "phase": None,
                "doing": None,
            }
        )
        for rejected in document["rejected"]:
            self._journal.note(event=rejected, kind="rejected")
        if self._cancelled.is_set():
            self._end(JobState.CANCELLED, result=document)
            return
        if error is not None:
            self._end(JobState.FAILED, result=document, error=error)
            return
        if report.best is None and report.out_of_time is not None:
            over = OutOfTime(report.stopped_because, report.out_of_time["would_do_secs"])
            self._end(JobState.FAILED, result=document, error=problem_of(over).to_json())
            return
        if report.best is None:
            counts = ", ".join(f"{n} {s}" for s, n in report.trials["by_status"].items() if n)
            failed = every_failed(rejected_words(document))
            detail = f"no candidate passed: {counts or 'none'}" + (f"; {failed}" if failed else "")
            rejected = document["rejected"]
            error = {"code": "no_candidate_passed", "detail": detail, "rejected": rejected}
            self._end(JobState.FAILED, result=document, error=error)
            return
        if document["warning"]:
            log.warning("job %s: %s", self._job.id, document["warning"])
        self._end(JobState.SUCCEEDED, result=document)

    def _publish_in_time(self, *args: Any) -> Published:
        """The files of the best; a cancelled job goes without."""
        if self._cancelled.is_set():
            return Published(warning="cancelled: the object file is built when it is asked for")
        return self._means.publish(*args)

    def _end(
        self,
        state: Any,
        *,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        if self._lost.is_set():
            log.info("job %s: it was ended, or taken over, meanwhile", self._job.id)
            return
        self._journal.flush()
        job = self._store.finish_job(
            self._job.id, self._job.epoch, state, result=result, error=error
        )
        secs = self._means.clock() - self._begun
        self._means.tally.job(str(job.state), self._secs_before + secs, secs)
        if self._span is not None:
            self._span.set_attribute("tilewright.state", str(job.state))
        outcome = {
            "outcome": str(job.state),
            "code": (error or {}).get("code"),
            "trials": job.progress.get("trials_done"),
            "secs": round(secs, 3),
            "elapsed_secs": round(self._secs_before + secs, 3),
        }
        log.info("job %s: %s", job.id, job.state, extra=outcome)

    # -- while it runs

    def _on_event(self, event: dict[str, Any]) -> None:
        """Note a trial that is stored, then look whether to go on.

        Trials of an earlier run, or of this job before its worker died, come in numbers and are
        no news: they are listed and counted, without events.
        """
        if not event["reused"]:
            self._failures = 0
        status = event["result"]["status"]
        self._failed += status != "ok"
        self._reused += event["reused"]
        told_before = event["trial"] < self._job.progress.get("trials_done", 0)
        self._journal.note(
            trial=(event["trial"], event["record_key"]),
            candidate=event.get("candidate"),
            event=None if event["reused"] else _short(event),
            progress=None  # a job that is taken up does not go back
            if told_before
            else {
                "trials": event["of_trials"],
                "trials_done": event["trial"],
                "reused": self._reused,
                "failed": self._failed,
                "best_run_secs": event["best_run_secs"],
                "fraction_of_bound": event["fraction_of_bound"],
                "wall_secs": event["wall_secs"],
                "eta_secs": event["eta_secs"],
                "used_secs": self._control.used_secs,
            },
        )
        if not event["reused"]:
            self._means.tally.trial(status)
        if self._means.stop.is_set() or self._lost.is_set():
            raise _Draining

    def _on_activity(self, activity: Activity) -> None:
        """Note what the job does now, and when it should have done it."""
        news = activity.phase != self._phase and activity.phase not in _TOLD_BY_TRIALS
        self._phase = activity.phase
        if self._lost.is_set():
            return
        progress: dict[str, Any] = {
            "phase": activity.phase,
            "doing": str(activity),
            "used_secs": self._control.used_secs,
        }
        if activity.left_secs is not None:
            progress["eta_secs"] = activity.left_secs
        self._journal.note(progress=progress, activity=asdict(activity) if news else None)

    def _secs_since_asked(self) -> float:
        asked = self._asked_to_end
        return 0.0 if asked is None else self._means.clock() - asked

    def _keep_lease(self) -> None:
        """Renew the lease in time, store what was noted, and look four times a second whether the
        job is to end: native work that does not end by itself is killed."""
        lease_secs = self._means.lease_secs
        renewed = self._means.clock()
        pause_secs, not_before = timeouts.JOB_POLL_SECS, renewed
        while not self._over.wait(min(lease_secs / 4, timeouts.JOB_POLL_SECS)):
            self._end_what_is_late()
            if self._means.clock() < not_before:
                continue
            try:
                if not self._cancelled.is_set() and self._store.is_cancel_requested(self._job.id):
                    self._cancelled.set()
                if self._means.clock() - renewed >= lease_secs / 3:
                    self._store.renew_lease(self._job.id, self._job.epoch, lease_secs)
                    renewed = self._means.clock()
                self._journal.flush(if_due=True)
                pause_secs = timeouts.JOB_POLL_SECS
            except StaleLease:
                self._lost.set()
            except StoreError as error:
                self._means.tally.store_error()
                pause_secs = min(2 * pause_secs, max(lease_secs / 3, timeouts.JOB_POLL_SECS))
                not_before = self._means.clock() + pause_secs
                log.warning("job %s: heartbeat missed: %s", self._job.id, error)

    def _end_what_is_late(self) -> None:
        cancelled = self._cancelled.is_set() or self._lost.is_set()
        if not (cancelled or self._means.stop.is_set()):
            return
        if self._asked_to_end is None:
            self._asked_to_end = self._means.clock()
        under_way = self._control.activity.phase in _LONG
        cancel_secs = timeouts.CANCELLED_STEP_SECS if under_way else timeouts.CANCELLED_CHECK_SECS
        if self._secs_since_asked() >= (cancel_secs if cancelled else timeouts.DRAINED_TRIAL_SECS):
            self._control.abort()
        if self._cancelled.is_set() and self._secs_since_asked() >= timeouts.CANCELLED_JOB_SECS:
            self._leave()

    def _leave(self) -> None:
        """End the cancelled job while its thread is at something it cannot be called away from:
        that ends by itself, and finds that the job is no longer its own."""
        if self._over.is_set() or self._lost.is_set():
            return
        try:
            self._end(JobState.CANCELLED)
        except StaleLease:
            return  # it has just ended
        except StoreError as error:
            log.warning("job %s: %s; trying again", self._job.id, error)
            return
        self._lost.set()


def _used_before(job: StoredJob) -> float:
    """Seconds of the budget that earlier leases used: never so many that the rest, which may have
    nothing to do but to check the best once more, has not half of it."""
    seconds = (job.request.get("budget") or {}).get("seconds")
    used_secs = float(job.progress.get("used_secs") or 0.0)
    return used_secs if seconds is None else min(used_secs, 0.5 * float(seconds))


def _short(event: dict[str, Any]) -> dict[str, Any]:
    """A trial as the stream tells it: without samples, which `trials` has."""
    result = {name: event["result"][name] for name in ("status", "run_secs_estimate", "detail")}
    told = {name: value for name, value in event.items() if name != "candidate"}
    return {**told, "result": result}


def _bug(error: Exception) -> dict[str, Any]:
    return {
        "code": "internal_error",
        "title": "A bug of the service",
        "detail": f"{type(error).__name__}: the service's log has the details",
        "advice": "Report it with the job's id; what was measured is stored.",
    }
