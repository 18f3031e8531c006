"""Runs a job during one lease: its time slices, its heartbeat, its end.

An error does not affect other jobs. An invalid request or a bug ends the job as FAILED; a bug's
traceback is logged. While the database is not writable, the job waits.
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
from tilewright.schedules.target import Target
from tilewright.service import logs, telemetry, timeouts
from tilewright.service.answers.failed_checks import all_failed_message, rejection_reasons
from tilewright.service.answers.publish import Publish, Published, publish
from tilewright.service.jobs.counters import Counters
from tilewright.service.jobs.journal import Journal
from tilewright.service.jobs.many_tasks import ManyTasks
from tilewright.service.jobs.options import TuneOptions
from tilewright.service.jobs.request import JobRequest, stored_job
from tilewright.service.jobs.time_slices import TimeSlices
from tilewright.service.jobs.tuning import (
    event_document,
    many_document,
    tune_into,
    tune_many_into,
    whole_document,
)
from tilewright.service.jobs.yield_policy import YieldPolicy
from tilewright.service.problems import problem_of
from tilewright.service.resolve import targets, toolchains
from tilewright.service.training import start_training
from tilewright.tuner.many.entries import distinct_tasks
from tilewright.tuner.many.report import ManyEvent, ManyReport
from tilewright.tuner.process.control import Activity, Control, MeasurementAborted, OutOfTime
from tilewright.tuner.session.report import TuneReport

if TYPE_CHECKING:
    from tilewright.db import Store

log = logging.getLogger("tilewright.worker")


_LONG = frozenset({"starting", "reference", "full check"})
_REPEATED_PHASES = frozenset({"proposing", "compiling", "measuring"})
"""Phases of a run that repeat with every batch. They are shown as progress, and have no events."""


MOST_LISTED = 1_000_000


class _Draining(BaseException):
    """Ends a run because the worker stops; the job returns to the queue. `on_event` raises it, and
    no code between `on_event` and `JobRun` may catch it."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """The values that all jobs of a worker share. `run` and `publish` can be replaced in tests.
    `stop` ends all jobs."""

    store: Store
    lease_secs: float
    stop: threading.Event
    time_slices: TimeSlices = field(default_factory=TimeSlices)
    counters: Counters = field(default_factory=Counters)
    run: Callable[..., TuneReport] = tune_into
    run_many: Callable[..., ManyReport] = tune_many_into
    publish: Publish = publish
    clock: Callable[[], float] = time.monotonic
    fleet: str = ""
    yield_policy: YieldPolicy = field(default_factory=YieldPolicy)

    def must_yield(self) -> bool:
        """Return whether ticket jobs yield to answers that are being prepared."""
        name = toolchains.toolchain_name(toolchains.toolchain())
        return self.yield_policy.is_due(lambda: self.store.preparations_waiting(name))


class JobRun:
    """Runs `job`, which this worker has leased, to its end."""

    def __init__(self, context: JobContext, job: StoredJob, owner: str = "") -> None:
        self._means = context
        self._store = context.store
        self._job = job
        self._owner = owner
        # A fleet has its own machines: its jobs take no time slices of this machine.
        mine = not str(job.request.get("measurer", "")).startswith("dask")
        self._turns = context.time_slices if mine else TimeSlices()
        self._is_ticket = mine and job.priority <= TICKET_PRIORITY
        self._journal = Journal(context.store, job, context.clock)
        self._control = Control(
            self._report_wait,
            is_wanted=lambda: self._turns.slice_is_over(job.id) or self._must_yield(),
            turn=self._yield_slice,
            on_activity=self._on_activity,
            now=context.clock,
            started=context.clock() - _secs_used_before(job),
        )
        self._span: Any = None
        self._phase = ""
        self._over = threading.Event()
        self._cancelled = threading.Event()
        self._lost = threading.Event()
        self._end_requested_at: float | None = None
        self._failed = self._reused = 0
        self._tasks: ManyTasks | None = None
        self._failures = job.failures
        self._has_started = False
        self._begun = context.clock()
        # Only the wait before this lease is measured by the time of day.
        self._secs_before = max((datetime.now(UTC) - job.created_at).total_seconds(), 0.0)

    def run_to_end(self) -> None:
        """Run the job. Errors are stored in the job, or logged; none is raised."""
        with (
            logs.bound(job_id=self._job.id),
            telemetry.span("job", job_id=self._job.id) as self._span,
        ):
            heartbeat = threading.Thread(
                target=copy_context().run, args=(self._keep_lease,), daemon=True
            )
            heartbeat.start()
            log.info("job %s: started (lease %d)", self._job.id, self._job.epoch)
            try:
                self._run_with_retries()
            except StaleLease:
                log.warning(
                    "job %s: another worker has it now", self._job.id, extra={"outcome": "lost"}
                )
            except Exception:  # its end cannot be stored; other jobs continue
                log.exception("job %s: a bug of ours, and the job cannot be ended", self._job.id)
            finally:
                self._means.counters.machine_wait(self._job.id, waits=False)
                self._over.set()
                heartbeat.join()

    def _run_with_retries(self) -> None:
        """Run the job, again and again while its database cannot be used. Stored measurements are
        reused."""
        pause_secs = timeouts.STORE_RETRY_SECS
        while True:
            try:
                self._attempt()
                return
            except StoreError as error:
                self._means.counters.store_error()
                log.warning("job %s: %s; trying again in %g s", self._job.id, error, pause_secs)
            with self._control.paused():
                stopped = self._means.stop.wait(pause_secs)
            if stopped:
                return  # the next worker resumes it immediately
            pause_secs = min(2 * pause_secs, timeouts.STORE_RETRY_MAX_SECS)

    def _attempt(self) -> None:
        try:
            with self._turns.participate(self._job.id, self._owner):
                self._run()
        except (StoreError, StaleLease):
            raise
        except _Draining:
            self._requeue()
        except OutOfTime as error:
            self._end(JobState.FAILED, error=problem_of(error).to_json())
        except MeasurementAborted:
            if self._cancelled.is_set():
                self._end(JobState.CANCELLED)
            else:  # the worker is stopping
                self._requeue()
        except TilewrightError as error:
            self._end(JobState.FAILED, error=problem_of(error).to_json())
        except Exception as error:  # a bug ends only this job
            log.exception("job %s: a bug of ours", self._job.id)
            self._end(JobState.FAILED, error=_bug(error))

    def _requeue(self) -> None:
        """Return the job to the queue, unless another worker has leased it."""
        if self._lost.is_set():
            return
        self._journal.note(failures=self._failures)
        self._journal.flush()
        self._store.release_job(self._job.id, self._job.epoch)
        log.info("job %s: given back", self._job.id, extra={"outcome": "given_back"})

    def _run(self) -> None:
        self._failed = self._reused = 0
        self._has_started = False
        self._control.allow((self._job.request.get("budget") or {}).get("seconds"))
        with self._control.paused():
            self._yield_to_preparations()
            self._turns.wait(self._job.id, self._wait_for_slice)
        if self._job.failures >= MAX_FAILURES:
            self._give_up()
            return
        self._mark_started()
        request = stored_job(self._job.request, self._means.fleet, self._control)
        if request.entries:
            self._run_many(request)
            return
        report = self._tune(request, request.options)
        self._finish(request, report)

    def _run_many(self, request: JobRequest) -> None:
        """Run a job of many workloads. It succeeds if every task has a best."""
        count = len(distinct_tasks(request.entries))
        self._tasks = ManyTasks.of_job(self._store, self._job, count)
        report = self._means.run_many(
            self._store,
            request.entries,
            request.target,
            request.options,
            self._on_many_event,
            self._cancelled.is_set,
            control=self._control,
        )
        if self._control.aborted and not self._cancelled.is_set():
            raise _Draining
        self._control.doing(Activity("publishing", "building the files of the bests"))
        document = many_document(
            self._store,
            request.entries,
            request.target,
            report,
            self._control,
            self._publish_in_time,
        )
        self._journal.note(
            progress={
                "wall_secs": document["wall_secs"],
                "eta_secs": 0.0,
                "waiting_for": None,
                "phase": None,
                "doing": None,
            }
        )
        failed = {task.name: task.error.message for task in report.tasks if task.error is not None}
        if self._cancelled.is_set():
            self._end(JobState.CANCELLED, result=document)
        elif report.complete:
            self._end(JobState.SUCCEEDED, result=document)
            self._learn(request.options, request.target)
        else:
            detail = "; ".join(f"{name}: {message}" for name, message in failed.items())
            error = {"code": "tasks_without_best", "detail": detail, "tasks": failed}
            self._end(JobState.FAILED, result=document, error=error)

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
        """End the job as FAILED, with its best trial. No trial is measured; the best is checked
        once more. Of a job of many workloads, the bests of tasks that had ended are stored."""
        trials = len(self._store.job_trials(self._job.id, limit=MOST_LISTED))
        log.error("job %s: %s", self._job.id, LOST_TOO_OFTEN["detail"])
        if not trials or "many" in self._job.request:
            self._end(JobState.FAILED, error=LOST_TOO_OFTEN)
            return
        self._mark_started()
        request = stored_job(self._job.request, self._means.fleet, self._control)
        known = replace(request.options.budget, trials=trials)
        report = self._tune(request, replace(request.options, budget=known))
        self._finish(request, report, error=LOST_TOO_OFTEN)

    # -- time slices

    def _yield_slice(self) -> None:
        """Let the next job use the machine if this job's time slice is over."""
        if self._means.stop.is_set() or self._lost.is_set():
            raise _Draining
        self._yield_to_preparations()
        self._turns.take_turn(self._job.id, self._wait_for_slice)
        self._report_wait("")

    def _must_yield(self) -> bool:
        return self._is_ticket and self._means.must_yield()

    def _yield_to_preparations(self) -> None:
        """Wait while answers are prepared, if this is a ticket job. Its own task may be among
        them."""
        self._turns.step_aside(
            self._job.id,
            self._must_yield,
            lambda: self._check_while_waiting("answers that are prepared before it"),
        )

    def _wait_for_slice(self, before: int) -> None:
        others = "1 other job is" if before == 1 else f"{before} other jobs are"
        self._check_while_waiting(f"its turn: {others} before it")

    def _check_while_waiting(self, waits_for: str) -> None:
        """Report the wait, or end it: raise _Draining if the worker stops, or MeasurementAborted if
        the job is cancelled."""
        if self._means.stop.is_set() or self._lost.is_set():
            raise _Draining
        if self._cancelled.is_set():
            raise MeasurementAborted("stopped on request")
        self._report_wait(waits_for)

    def _report_wait(self, text: str) -> None:
        """Report the resource that the job waits for, or "" if the wait is over."""
        if self._lost.is_set():
            return
        for_machine = text.startswith("waiting for the machine")
        self._means.counters.machine_wait(self._job.id, waits=for_machine)
        if for_machine:
            log.warning("job %s: %s", self._job.id, text)
        if text:
            self._has_started = False
            self._journal.note(progress={"waiting_for": text}, failures=self._failures)
        elif not self._has_started:
            self._mark_started()

    def _mark_started(self) -> None:
        """Store that the death of this process counts as a failure of the job from now on. A death
        that was caused from outside does not count. This is stored before the work begins."""
        self._journal.note(progress={"waiting_for": None}, failures=self._failures + 1)
        self._journal.flush()
        self._has_started = True

    # -- the end

    def _finish(
        self, request: JobRequest, report: TuneReport, error: dict[str, Any] | None = None
    ) -> None:
        """End the job with its result. If there is an `error`, the job is FAILED."""
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
            failed = all_failed_message(rejection_reasons(document))
            detail = f"no candidate passed: {counts or 'none'}" + (f"; {failed}" if failed else "")
            rejected = document["rejected"]
            error = {"code": "no_candidate_passed", "detail": detail, "rejected": rejected}
            self._end(JobState.FAILED, result=document, error=error)
            return
        if document["warning"]:
            log.warning("job %s: %s", self._job.id, document["warning"])
        self._end(JobState.SUCCEEDED, result=document)
        self._learn(request.options, request.target)

    def _learn(self, options: TuneOptions, target: Target) -> None:
        """Start the training of a model if one is due."""
        if not targets.is_mocked(options.measurer):
            start_training(self._store, target.key)

    def _publish_in_time(self, *args: Any) -> Published:
        """Return the files of the best, or no files if the job is cancelled."""
        if self._cancelled.is_set():
            return Published(warning="cancelled: the object file is built on demand")
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
        self._means.counters.job(str(job.state), self._secs_before + secs, secs)
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
        """Record a stored trial. Raise _Draining if the run must end. Reused trials, of an earlier
        run or of an earlier worker of this job, are listed and counted, but have no events."""
        if not event["reused"]:
            self._failures = 0
        status = event["result"]["status"]
        self._failed += status != "ok"
        self._reused += event["reused"]
        reported_before = event["trial"] < self._job.progress.get("trials_done", 0)
        self._journal.note(
            trial=(event["trial"], event["record_key"]),
            candidate=event.get("candidate"),
            event=None if event["reused"] else _event_without_samples(event),
            progress=None  # progress of a resumed job does not go back
            if reported_before
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
            self._means.counters.trial(status)
        if self._means.stop.is_set() or self._lost.is_set():
            raise _Draining

    def _on_many_event(self, event: ManyEvent) -> None:
        """Record a trial or a change of one task of many. Trials are numbered across tasks; their
        events have the name of the task, and their number within it."""
        tasks, trial = self._tasks, event.trial
        assert tasks is not None, "the run of many began"
        if trial is not None:
            self._on_task_trial(tasks, event.task.name, event_document(trial))
        told, progress = tasks.update(event.task), tasks.progress()
        self._journal.note(
            event=told,
            kind="task",
            progress=progress
            and {
                **progress,
                "reused": self._reused,
                "failed": self._failed,
                "wall_secs": self._control.wall_secs,
                "used_secs": self._control.used_secs,
                "eta_secs": event.eta_secs,
            },
        )
        if self._means.stop.is_set() or self._lost.is_set():
            raise _Draining

    def _on_task_trial(self, tasks: ManyTasks, task: str, found: dict[str, Any]) -> None:
        status = found["result"]["status"]
        self._reused += found["reused"]
        self._failed += status != "ok"
        if not found["reused"]:
            self._failures = 0
            self._means.counters.trial(status)
        number = tasks.number_of(found["record_key"])
        named = {"task": task, "trial": number, "task_trial": found["trial"]}
        self._journal.note(
            trial=(number, found["record_key"]),
            event=None if found["reused"] else {**_event_without_samples(found), **named},
        )

    def _on_activity(self, activity: Activity) -> None:
        """Record the current activity, and when it should end."""
        news = activity.phase != self._phase and activity.phase not in _REPEATED_PHASES
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

    def _secs_since_end_requested(self) -> float:
        since = self._end_requested_at
        return 0.0 if since is None else self._means.clock() - since

    def _keep_lease(self) -> None:
        """Renew the lease and flush the journal. Check four times a second whether the job must
        end; native code that does not return is then killed."""
        lease_secs = self._means.lease_secs
        renewed = self._means.clock()
        pause_secs, not_before = timeouts.JOB_POLL_SECS, renewed
        while not self._over.wait(min(lease_secs / 4, timeouts.JOB_POLL_SECS)):
            self._kill_if_late()
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
                self._means.counters.store_error()
                pause_secs = min(2 * pause_secs, max(lease_secs / 3, timeouts.JOB_POLL_SECS))
                not_before = self._means.clock() + pause_secs
                log.warning("job %s: heartbeat missed: %s", self._job.id, error)

    def _kill_if_late(self) -> None:
        cancelled = self._cancelled.is_set() or self._lost.is_set()
        if not (cancelled or self._means.stop.is_set()):
            return
        if self._end_requested_at is None:
            self._end_requested_at = self._means.clock()
        under_way = self._control.activity.phase in _LONG
        cancel_secs = timeouts.CANCELLED_STEP_SECS if under_way else timeouts.CANCELLED_CHECK_SECS
        if self._secs_since_end_requested() >= (
            cancel_secs if cancelled else timeouts.DRAINED_TRIAL_SECS
        ):
            self._control.abort()
        if (
            self._cancelled.is_set()
            and self._secs_since_end_requested() >= timeouts.CANCELLED_JOB_SECS
        ):
            self._abandon()

    def _abandon(self) -> None:
        """End the cancelled job although its thread cannot be interrupted. The thread finds later
        that its lease is lost, and ends."""
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


def _secs_used_before(job: StoredJob) -> float:
    """Return the seconds of the budget that earlier leases used, but at most half of the budget:
    the rest may be needed to check the best again."""
    seconds = (job.request.get("budget") or {}).get("seconds")
    used_secs = float(job.progress.get("used_secs") or 0.0)
    return used_secs if seconds is None else min(used_secs, 0.5 * float(seconds))


def _event_without_samples(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event of a trial without its samples, which are in the job's list of trials."""
    result = {name: event["result"][name] for name in ("status", "run_secs_estimate", "detail")}
    shortened = {name: value for name, value in event.items() if name != "candidate"}
    return {**shortened, "result": result}


def _bug(error: Exception) -> dict[str, Any]:
    return {
        "code": "internal_error",
        "title": "A bug of the service",
        "detail": f"{type(error).__name__}: the service's log has the details",
        "advice": "Report it with the job's id; all measurements are stored.",
    }
